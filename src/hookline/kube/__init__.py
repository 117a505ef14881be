"""Kubernetes: what every system with objects in a cluster shares.

Pure, values in and values out:

objects      kinds of objects, their fields, common parts, manifests of users, and the errors
pod_state    the state of containers, pods and Jobs, with their limits

With requests to a cluster:

client       finds the cluster, logs in and sends requests; its errors as messages; nothing else names its library
lease        leader election
controller   the loop of a controller, and the local copies of kinds that it keeps up to date
operator     the program that runs several controllers, and all objects that its installation needs
jobs         a program of hookline's as a Job, from its creation to its end
logs         the log of a container, read to its end
"""
