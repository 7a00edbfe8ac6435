"""The contract of a place for objects: a test class inherits from it and has a fixture `storage`, empty for each test.

docs/python.md has an example.
"""

from __future__ import annotations

from tierfs.engine.testing.chunk_storage import Ends, Keeps, Reads, Refuses, Writes
from tierfs.engine.testing.compose import Composes

__all__ = ["ChunkStorageSuite"]


class ChunkStorageSuite(Reads, Writes, Keeps, Refuses, Composes, Ends):
    """Every test of the contract."""
