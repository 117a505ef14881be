"""Images of hooks: from a reference to a folder, safely."""
