"""Compose a store from the layers below: the composition root.

`store` opens one and owns its parts; with `setup` this folder is the only code that names concrete classes. Every
other module is one verb that a command, a job or a mount needs: it takes an open store, puts layers together and
returns a record. Rule: no policy, no formats, no output here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tierfs.app.store import Store, open_store

__all__ = ["Store", "open_store"]


def __getattr__(name: str) -> Any:
    """Import `store` with the first use of its names: commands that look at files only must start fast."""
    if name in ("Store", "open_store"):
        from tierfs.app import store

        return getattr(store, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
