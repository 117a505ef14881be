"""AgentRun manifests on one machine: containers around a run of an agent, without a cluster.

command   `hookline run agentrun.yaml` and its `--resume`
local     a run from its beginning to its end, or one that was broken off
hooks     one run with its state, written to disk at each change; its hooks as hooks of the engine
agent     the agent from outside: its start, the hooks that it asks, its result
program   the built-in agent from inside: the process that is started in the place of the hooks
folders   the folders of one run: made, locked, measured, removed
"""
