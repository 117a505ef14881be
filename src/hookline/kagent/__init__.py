"""kagent's manifests: an `Agent` with `spec.hooks`, and the objects in the same file or cluster that it names.

system      the room as `hookline` finds it
agent       an agent as values: what its manifests say, its hooks, and what it comes to on this machine
keys        the keys of an `Agent`
read        reads a file, and every object in it; gathers what an agent of a cluster refers to
load        an agent made live: its model, its tools and its hooks
fetch       the images of hooks in a folder, here and in the container `hooks-init`
objects     an agent as objects of a cluster
controller  looks after the agents of a cluster
records     what their pods tell of their runs, in the operator's journal
"""
