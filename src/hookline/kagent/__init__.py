"""kagent's manifests: an `Agent` with `spec.hooks`, and the objects in the same file that it names.

objects   what a file holds, as values: agents with their hooks, models, MCP servers
agents    reads an `Agent`
reading   reads a file, and every object in it
hooks     what reaches the runtime of each hook, and the hooks as declarations
planning  what one agent comes to on this machine; what only a cluster has is told, with what to do here

Nothing is started or fetched here: values in, values out.
"""
