"""Tests for what users write: the contract of a place for objects, as test classes for pytest.

`suite` puts them together; programs import it as `tierfs.testing`. `chunk_storage` has whole objects, ranges, names and
refusals, `compose` objects that are made of others. Needs pytest, the extra `testing`.
"""

from tierfs.base.system import extras

with extras.needed_by("tierfs.testing", "testing"):
    import pytest

pytest.register_assert_rewrite("tierfs.engine.testing.chunk_storage", "tierfs.engine.testing.compose")
