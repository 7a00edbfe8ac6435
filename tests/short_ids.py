"""A plugin: a parameter that is a long text has a short id, as each process sends the id with each report."""

from __future__ import annotations

import pytest

_LONGEST = 1000
"""More is nothing that a person reads: three cases of 2.5 MiB once had ids of 30 MB."""


class ShortIds:
    """Registered by tests/conftest.py."""

    @pytest.hookimpl
    def pytest_make_parametrize_id(self, val: object, argname: str) -> str | None:
        """Name a long text by its parameter and its length; leave all others to pytest."""
        if isinstance(val, (str, bytes)) and len(val) > _LONGEST:
            return f"{argname}-of-{len(val)}"
        return None
