"""Sympozium's manifests: containers before and after a run of an agent.

types        the objects of a file as values, and the keys they are read from
lifecycle    the same for a `lifecycle` and the containers in it
read         reads a file, and every object in it
resolve      one run of a file and the command line; as a declaration
check        `hookline check` and `hookline explain`: commands that cannot work, and the hooks that will run
environment  the variables of hooks and agent, and the secrets among them
phases       the phase of a run and its next step, by its observed state
run          a run on this machine
cluster      runs on a cluster

Decisions are made here, with values in and values out; `run` and `cluster` carry them out.
"""
