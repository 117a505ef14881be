"""AgentRun manifests on one machine: containers around a run of an agent, without a cluster.

places     the folders of one run: made, held, looked into, removed
room       how much these may hold, and the end of a process that fills them
secrets    what `secretKeyRef` means here
watching   what was seen of a run, kept on the disk at each change, and told
containers the hooks of a manifest as hooks of the engine
asked      what a user asked for, kept beside the run
working    the agent: in the same place as the hooks, under the contract of Sympozium's runner
relaying   hooks of the command line around what the agent does in there
inside     the built-in agent, as it is started there
running    one run from its beginning to its end, and what a killed process left of one

What is due next and what a run came to is decided in `hookline.sympozium`; here it is done.
"""
