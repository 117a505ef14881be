"""Images of hooks: from a reference to a folder, safely.

`fetch.fetch` is the entry point, `fetch.shown` makes the folder of a run; the modules below them, from the bottom up:
tree, layers, manifest, sources, archives and registry (credentials), cache.
"""
