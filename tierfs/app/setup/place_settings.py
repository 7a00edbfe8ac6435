"""The parts of the places of a store as settings: `cold.url`, `archive.place` and those of their servers."""

from __future__ import annotations

from tierfs.base.options.settings import as_toml
from tierfs.base.words.names import printable
from tierfs.engine.metadata.records import LocationRecord

# By the names of the fields of its record. Empty text stands for the default.
KEYS = ("url", "endpoint_url", "region", "profile")

# The names of these parts as settings, of the cold tier and of the archive place.
COLD = {f"cold.{key}": key for key in KEYS}
ARCHIVE = {"archive.place": "url", **{f"archive.{key}": key for key in KEYS[1:]}}


def parts(place: LocationRecord | None, archive: LocationRecord | None = None) -> dict[str, str]:
    """Return the parts of the places by their names as settings, like `cold.url`; none for none."""
    of_cold = {} if place is None else {name: getattr(place, key) for name, key in COLD.items()}
    of_archive = {} if archive is None else {name: getattr(archive, key) for name, key in ARCHIVE.items()}
    return {**of_cold, **of_archive}


def lines(place: LocationRecord | None, archive: LocationRecord | None = None) -> list[str]:
    """Format the parts of the places as settings are shown."""
    return [f"{name} = {printable(as_toml(str, value))}  (store)" for name, value in parts(place, archive).items()]
