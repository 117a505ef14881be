"""Sympozium's manifests: containers before and after a run of an agent.

types        the objects of a file as values, and the keys they are read from
lifecycle    the same for a `lifecycle` and the containers in it
read         reads a file, and every object in it
resolve      one run out of a file and the command line; as a declaration
check        `hookline check` and `hookline explain`: what cannot work as it is written, and what will run
environment  the variables of hooks and agent, and the secrets among them
phases       the phase of a run and what is due next, out of what was seen
run          a run on this machine
cluster      runs on a cluster

What is due and what a run came to is decided here: values in, values out. It is done in `run` and in `cluster`.
"""
