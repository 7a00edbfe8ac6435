"""tierfs config: the store's settings."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

import click

from tierfs import settings
from tierfs.cli.lazy import LazyGroup, command
from tierfs.cli.session import Session
from tierfs.config import Settings
from tierfs.errors import NotFound
from tierfs.names import printable
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
    values = _values(loaded.settings)
    data = {name: {"value": value, "origin": loaded.origins[name].value} for name, value in values.items()}
    lines = [f"{name} = {_shown(name, value)}  ({loaded.origins[name]})" for name, value in values.items()]
    session.result(data, "\n".join(lines))


def _values(tree: Settings) -> dict[str, Any]:
    """Values by name, in the order of the file."""
    return {
        f"{section.name}.{key.name}": getattr(getattr(tree, section.name), key.name)
        for section in fields(tree)
        for key in fields(getattr(tree, section.name))
    }


def _shown(name: str, value: object) -> str:
    return "not set" if value is None else printable(settings.as_toml(name, value))
