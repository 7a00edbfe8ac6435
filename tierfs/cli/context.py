"""What every command gets: which store, and how to talk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from tierfs.app import Store, open_store
from tierfs.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Context:
    """The global options."""

    path: Path | None
    as_json: bool
    quiet: bool

    def store_path(self) -> Path:
        """The store's directory; raises InvalidRequest when none was named."""
        if self.path is None:
            raise InvalidRequest("no store was named", remedy="give --store DIR, or set TIERFS_STORE")
        return self.path.absolute()

    def open(self) -> Store:
        """Open the store."""
        return open_store(self.store_path())


pass_context = click.make_pass_decorator(Context)
"""Hands the Context to a command as its first argument."""
