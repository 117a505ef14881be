"""Images of hooks: from a reference to a folder, safely.

`fetching.fetch` is the way in, `showing.shown` makes the folder of a run; everything below them is in the order
reference, manifest, sources (archives, registry), unpacking (tree, limits), cache.
"""
