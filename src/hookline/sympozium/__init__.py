"""Sympozium's manifests: containers before and after a run of an agent.

objects      what a file holds, and what one run comes to, as values
lifecycles   reads a `lifecycle` block and the containers in it
reading      reads a file, and every object in it
runs         one run of a file: from an AgentRun, an instance or a persona of a pack; as a declaration
checking     what cannot work as it is written, and what only a cluster heeds
environment  the variables of hooks and agent
result       what an agent left: its result file, or the marker in its output
kept         what was seen of a run as plain data, and back
phases       what a run is at, and what is due next, of what was seen

Nothing is started or fetched here: values in, values out.
"""
