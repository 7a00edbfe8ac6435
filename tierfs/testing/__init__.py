"""Tests for what users write: `ChunkStorageSuite` is the contract of a place for objects, for pytest.

A test class inherits from it and has a fixture `storage`, an empty place for each test; docs/python.md has an example.
Needs pytest.
"""

from tierfs.system import extras

with extras.needed_by("tierfs.testing", "testing"):
    import pytest

pytest.register_assert_rewrite("tierfs.testing.chunk_storage", "tierfs.testing.compose")

from tierfs.testing.chunk_storage import Ends, Keeps, Reads, Refuses, Writes  # noqa: E402  # once rewritten
from tierfs.testing.compose import Composes  # noqa: E402

__all__ = ["ChunkStorageSuite"]


class ChunkStorageSuite(Reads, Writes, Keeps, Refuses, Composes, Ends):
    """Every test of the contract."""
