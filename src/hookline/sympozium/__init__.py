"""Sympozium's manifests: containers before and after a run of an agent.

types        a run and an agent as values; a `lifecycle` and the keys it is read from
read         reads a file, and every object in it by its keys
resolve      one run of a file and the command line; as a declaration
check        `hookline check` and `hookline explain`: commands that cannot work, and the hooks that will run
environment  the variables of hooks and agent, and the secrets among them
phases       the phase of a run and its next step, by its observed state
run          a run on this machine
cluster      runs on a cluster

Decisions are made here, with values in and values out; `run` and `cluster` carry them out.
"""
