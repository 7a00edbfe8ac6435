"""One block for both sides of a limit."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest


def refused(
    when: object, error: type[BaseException] | tuple[type[BaseException], ...], match: str | None = None
) -> AbstractContextManager[Any]:
    """Require that the block raises the error if `when` holds, and that it passes otherwise."""
    return pytest.raises(error, match=match) if when else nullcontext()
