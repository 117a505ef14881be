"""Images of hooks: from a reference to a folder, safely.

`fetch.fetch` is the entry point, `links.shown` makes the folder of a run; the modules below them, from the bottom up:
reference, manifest, sources (archives, registry), layers (tree, quota), cache.
"""
