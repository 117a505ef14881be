"""Kubernetes: the floor that every room with something in a cluster stands on.

Pure, values in and values out:

kinds        the kinds of objects that are known, and their places in the API
fields       access to plain objects that may lack any field
pods         security, resources and names that all our pods share
jobs         a program of hookline's as a Job
pod_state    the state of containers, read from their pod
job_state    the state of a Job's containers, with their limits
install      all objects that an installation needs

What talks to a cluster:

kubeconfig   finds the cluster and logs in; nothing else names its library
transport    requests: retries, errors, long answers
client       the client
cache        local copies of kinds, kept up to date
lease        leader election
controller   the loop of a controller, and the program that runs several
job_run      one Job from its creation to its end
logs         the log of a container, read to its end
connect      the cluster that a command means, and its refusals as messages
errors       the errors of all these
"""
