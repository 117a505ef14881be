"""The operator: what Sympozium's manifests ask for, as objects in a Kubernetes cluster.

kinds      the kinds of objects, and where the API server keeps each
schemas    what the API server is told about our objects, made of the tables by which files are read
crds       the definitions of the kinds
installing what an installation of the operator needs, as objects
errors     what can go wrong with a cluster, as one tree
cluster    the only module that talks to a cluster, and the only one that loads its client
watching   a local copy of all objects of a kind, kept up to date
leading    of several operators, the one that acts
kagent     what an Agent of kagent's comes to, as objects
kagents    keeps those objects, and tells how they fare
fetching   the container that fetches the images of its hooks
"""
