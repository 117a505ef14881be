"""AgentRun manifests on one machine: containers around a run of an agent, without a cluster.

command   `hookline run agentrun.yaml`, and its `--resume`
local     one run from its beginning to its end, and the end of one that a killed process left
hooks     the hooks of a manifest as hooks of the engine
agent     the agent: in the same place as the hooks, under the contract of Sympozium's runner; and its result
program   the built-in agent, as it is started there
relay     hooks of the command line around the steps and tools of that agent
state     the state of a run, written to disk at each change; as lines
folders   the folders of one run: made, locked, measured, removed
"""
