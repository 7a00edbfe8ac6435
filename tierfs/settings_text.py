"""Settings as people read them: one line each, with where the value comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from tierfs import settings
from tierfs.names import printable
from tierfs.settings import LoadedSettings


def values(loaded: LoadedSettings) -> Iterator[tuple[str, Any]]:
    """Names like `read.budget_bytes` and their values, in the order of the file."""
    for section in fields(loaded.settings):
        tree = getattr(loaded.settings, section.name)
        for key in fields(tree):
            yield f"{section.name}.{key.name}", getattr(tree, key.name)


def lines(loaded: LoadedSettings) -> str:
    """`name = value  (origin)`, a line each."""
    return "\n".join(f"{name} = {_shown(name, value)}  ({loaded.origins[name]})" for name, value in values(loaded))


def _shown(name: str, value: object) -> str:
    return "not set" if value is None else printable(settings.as_toml(name, value))
