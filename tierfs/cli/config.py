"""tierfs config: the store's settings."""

from __future__ import annotations

import os

import click

from tierfs import settings
from tierfs.cli.lazy import LazyGroup, command
from tierfs.cli.session import Session
from tierfs.errors import NotFound
from tierfs.store_paths import StorePaths


@click.group("config", cls=LazyGroup, lazy={"show": "tierfs.cli.config:show"}, store_variable=None)
def config() -> None:
    """Look at the store's settings."""


@command("show")
def show(session: Session) -> None:
    """Show every setting and where it comes from: default, file (store.toml) or environment."""
    path = session.require_store_path()
    file = StorePaths(path.absolute()).settings
    if not file.is_file():
        raise NotFound(f"{path} is not a tierfs store", remedy=f"create one with: tierfs --store {path} init")
    loaded = settings.load_with_origins(file, os.environ)
    data = {name: {"value": value, "origin": loaded.origins[name].value} for name, value in settings.values(loaded)}
    session.result(data, settings.lines(loaded))
