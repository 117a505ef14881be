"""kagent's manifests: an `Agent` with `spec.hooks`, and the objects in the same file or cluster that it names.

system      the room as `hookline` finds it
agent       an agent as values: its manifests, its hooks, and its plan for this machine
keys        the keys of an `Agent`
read        reads every object of a file; collects the objects that an agent of a cluster refers to
load        an agent made live: its model, its tools, its hooks (in the protocol of `claude/`) and their images
fetch       the container `hooks-init`: fetches the images of hooks into a folder
objects     an agent as objects of a cluster
controller  reconciles the agents of a cluster
records     takes the records that their pods print into the operator's journal
"""
