"""tierfs mounts tiered log storage as a directory of ordinary read-only files.

Nine wings, and a wing imports only from those below it:

    pipeline   Spark: read, stream and write by name, and jobs over a store
    faces      ways in: command line, HTTP, Python, fsspec, doctor
    app        puts a store together, makes, moves and rebuilds one
    mount      the FUSE filesystem
    upkeep     the process that does the cold work, and the check of everything
    tiering    moves bytes between tiers, ends them, brings in those of others
    reading    finds, fetches, proves and keeps bytes
    engine     segments, their rows, their chunks, the bucket's journal
    base       words, bytes, options, the operating system

Each wing's `__init__.py` is its map. docs/architecture.md follows an append, an offload, a read and a recovery.

For Python programs: `tierfs.open_store(path)`, and docs/python.md.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from tierfs.base.words import errors
    from tierfs.engine.testing import suite as testing
    from tierfs.faces.python.ledger import Ledger, ManagedLedger
    from tierfs.faces.python.segment import Reader, Segment, Writer
    from tierfs.faces.python.store import Store, open_store

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

# Modules that programs import from here, by the places where they stand.
_PUBLIC = {"errors": "tierfs.base.words.errors", "testing": "tierfs.engine.testing.suite"}

__all__ = [
    "Ledger",
    "ManagedLedger",
    "Reader",
    "Segment",
    "Store",
    "Writer",
    "__version__",
    "errors",
    "open_store",
    "testing",
]


def __getattr__(name: str) -> Any:
    """Import a class of the Python face, or a public module, with its first use."""
    from importlib import import_module

    if name in _PUBLIC:
        return import_module(_PUBLIC[name])
    if name not in _FACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"tierfs.faces.python.{_FACE[name]}"), name)


def __dir__() -> list[str]:
    """Return the names, those that are not imported yet too."""
    return sorted({*globals(), *__all__})


class _PublicModules:
    """Makes `from tierfs.errors import NotFound` the module that stands elsewhere. Asked when no file has the name.

    A finder and a loader by their methods: importlib.abc would cost more than the rest of this import.
    """

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        package, _, name = fullname.rpartition(".")
        if package != __name__ or name not in _PUBLIC:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(fullname, self)  # type: ignore[arg-type]  # a loader by its methods

    def create_module(self, spec: ModuleSpec) -> None:
        """See importlib.abc.Loader: importlib's own module, for a moment."""

    def exec_module(self, module: ModuleType) -> None:
        """See importlib.abc.Loader."""
        # An import returns what stands in sys.modules after it: importlib's rule for modules that replace themselves.
        sys.modules[module.__name__] = __getattr__(module.__name__.rpartition(".")[2])


sys.meta_path.append(_PublicModules())
