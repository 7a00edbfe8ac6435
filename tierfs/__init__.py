"""tierfs mounts tiered log storage as a directory of ordinary read-only files.

Folders are layers, lowest first: the core modules here, metadata, chunkstore, segments, reading,
background, fuse, then app.py (the one composition root) and cli. A lower layer never imports a
higher one; the contracts in pyproject.toml enforce it.
"""

__version__ = "0.1.0"
