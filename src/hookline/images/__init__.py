"""Images of hooks: from a reference to a folder, safely.

`fetch.fetch` is the entry point and has the cache, `fetch.shown` makes the folder of a run; the modules below, from the
bottom up: tree, layers, reference, manifest, archives, credentials and registry.
"""
