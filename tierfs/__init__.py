"""tierfs mounts tiered log storage as a directory of ordinary read-only files.

Folders are layers. The modules here are the core that all share; above it are metadata, chunkstore, segments and
journal, reading, tiering with garbage and retention, the holder, fuse, recovery, app (the composition root), and cli.
A lower layer never imports a higher one, and a package's `__all__` lists the modules that others may import; the
contracts in pyproject.toml enforce both. docs/architecture.md draws the rooms.

For Python programs: `tierfs.open_store(path)`, and docs/python.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tierfs.python.ledger import Ledger, ManagedLedger
    from tierfs.python.segment import Reader, Segment, Writer
    from tierfs.python.store import Store, open_store

# The classes of the Python face, by their module: every command imports this package, and few need them.
_FACE = {
    "Ledger": "ledger",
    "ManagedLedger": "ledger",
    "Reader": "segment",
    "Segment": "segment",
    "Store": "store",
    "Writer": "segment",
    "open_store": "store",
}

__all__ = ["Ledger", "ManagedLedger", "Reader", "Segment", "Store", "Writer", "__version__", "open_store"]


def __getattr__(name: str) -> Any:
    """Import a class of the Python face with its first use."""
    if name not in _FACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"tierfs.python.{_FACE[name]}"), name)


def __dir__() -> list[str]:
    """Return the names, those that are not imported yet too."""
    return sorted({*globals(), *__all__})
