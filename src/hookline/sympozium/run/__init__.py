"""AgentRun manifests on one machine: containers around a run of an agent, without a cluster.

command   `hookline run agentrun.yaml`, and its `--resume`
local     one run from its beginning to its end, and the end of one that a killed process left
hooks     the hooks of a manifest as hooks of the engine
agent     the agent from outside: its start, the hooks that it asks, its result
program   the built-in agent from inside: the process that is started in the place of the hooks
state     the state of a run, written to disk at each change; as lines
folders   the folders of one run: made, locked, measured, removed
"""
