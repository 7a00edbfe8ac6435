"""The parts of the place of a cold tier as settings: `cold.url` and those of its server."""

from __future__ import annotations

from tierfs.base.options.settings import as_toml
from tierfs.base.words.names import printable
from tierfs.engine.metadata.records import LocationRecord

# By the names of the fields of its record. Empty text stands for the default.
KEYS = ("url", "endpoint_url", "region", "profile")


def parts(place: LocationRecord | None) -> dict[str, str]:
    """Return the parts of a place by their names as settings, like `cold.url`; none for none."""
    return {} if place is None else {f"cold.{key}": getattr(place, key) for key in KEYS}


def lines(place: LocationRecord | None) -> list[str]:
    """Format the parts of a place as settings are shown."""
    return [f"{name} = {printable(as_toml(str, value))}  (store)" for name, value in parts(place).items()]
