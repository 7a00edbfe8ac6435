"""URLs and paths of segments.

    tierfs:///srv/store/logs/web    the longest leading part that is a store is the store
    tierfs://logs/web               the store is named by the option `store` or by TIERFS_STORE

A path keeps the form it was given in: listing `/srv/store/logs` gives `/srv/store/logs/web`, and listing `logs` gives
`logs/web`, because fsspec compares what it lists with what it asked for.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from tierfs.errors import InvalidRequest
from tierfs.names import printable
from tierfs.store_paths import StorePaths

PROTOCOL = "tierfs"
_SCHEME = f"{PROTOCOL}://"


def strip(url: str) -> str:
    """The path of a URL, without a slash at its end; a path stays as it is, and the root is empty."""
    return url.removeprefix(_SCHEME).rstrip("/")


def is_url(where: str) -> bool:
    """Whether a store is named by the URL of its bucket, not by its directory."""
    return "://" in where


def store_of(path: str) -> str | None:
    """The store that an absolute path leads into: its longest leading part that is one; None where none is."""
    if not path.startswith("/"):
        return None
    place = PurePosixPath(os.path.normpath(path))
    for candidate in (place, *place.parents):
        if StorePaths(Path(candidate)).settings.is_file():
            return str(candidate)
    return None


def name_in(store: str, path: str) -> str:
    """The segment's or directory's name in `store` that a path stands for.

    Raises InvalidRequest for a path into another store.
    """
    if not path.startswith("/"):
        return path
    if not is_url(store) and (inside := _below(store, path)) is not None:
        return inside
    other = store_of(path)
    if other is not None and (is_url(store) or os.path.realpath(other) != os.path.realpath(store)):
        raise InvalidRequest(
            f"{printable(path)} is in the store {printable(other)}, and this filesystem is of {printable(store)}",
            remedy=f"open it as {_SCHEME}{printable(path)}, without another store in storage_options",
        )
    return path.strip("/") if other is None else _below(other, path) or ""


def _below(store: str, path: str) -> str | None:
    """What follows the store's directory in a path; None where the path does not begin with it."""
    found, directory = PurePosixPath(os.path.normpath(path)), PurePosixPath(os.path.normpath(store))
    if not found.is_relative_to(directory):
        return None
    inside = str(found.relative_to(directory))
    return "" if inside == "." else inside
