"""tierfs mounts tiered log storage as a directory of ordinary read-only files.

Folders are layers. The modules here are the core that all share; above it are metadata, chunkstore, segments and
journal, reading, tiering with garbage and retention, the holder, fuse, recovery, app (the composition root), and cli.
A lower layer never imports a higher one, and a package's `__all__` lists the modules that others may import; the
contracts in pyproject.toml enforce both. docs/architecture.md draws the rooms.
"""

__version__ = "0.1.0"
