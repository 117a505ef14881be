"""Kubernetes: what every system with objects in a cluster shares.

Pure, values in and values out:

objects      kinds of objects, their fields, common parts, manifests of users, and the errors
pod_state    the state of containers, pods and Jobs, with their limits
install      all objects that an installation needs

With requests to a cluster:

transport    finds the cluster, logs in and sends requests; nothing else names its library
client       the client, and its errors as messages
cache        local copies of kinds, kept up to date
lease        leader election
controller   the loop of a controller, and the program that runs several
jobs         a program of hookline's as a Job, from its creation to its end
logs         the log of a container, read to its end
"""
