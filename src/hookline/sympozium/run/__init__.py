"""AgentRun manifests on one machine: containers around a run of an agent, without a cluster.

command   `hookline run agentrun.yaml`, and its `--resume`
local     one run from its beginning to its end, and the end of one that a killed process left
hooks     the hooks of a manifest as hooks of the engine
agent     the agent: in the same place as the hooks, under the contract of Sympozium's runner; and its result
program   the built-in agent, as it is started there
relay     hooks of the command line around what the agent does in there
state     what was seen of a run, written to disk at each change
folders   the folders of one run: made, held, looked into, removed; and how much they may hold
"""
