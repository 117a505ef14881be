"""Kubernetes: AgentRuns, agents and packs of Sympozium, and kagent's agents, worked off in a cluster.

Pure, values in and values out:

kinds        the kinds of objects that are spoken of, and where they are in the API
parts        looks into plain objects whose form nobody vouches for
schemas      what each kind may hold, from the tables by which files are read
crds         the definitions of Sympozium's kinds; kagent_crds those of kagent's
installing   all that an installation needs
objects      what one AgentRun comes to: account, claim, Jobs and their pods
kagent       what one kagent agent comes to: Deployment, Service, Secret
submitting   the AgentRun that a file asks for
seeing       what a pod tells of its containers
following    how the containers of one Job fare, with their limits
record       what is kept of a run, to go on from after a crash
deciding     what is to be done for a run now
telling      its status, conditions and events
journaling   its status as the records of a run
packs        the agents of a pack, and the runs that are old enough to go
granting     what asks for more than may be granted

What talks to the cluster:

cluster      the client; nothing else names its library
watching     a copy of one kind, kept up to date
leading      which of several operators acts
acting       does for one run what was decided
operator     looks at a run whenever something of it has changed; kagents at an agent

What runs in pods: `prepare` before the hooks of a run, `fetching` before a kagent agent.
"""
