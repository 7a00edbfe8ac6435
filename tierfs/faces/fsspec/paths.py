"""URLs and paths of segments.

    tierfs:///srv/store/logs/web    the longest leading part that is a store is the store
    tierfs://logs/web               the store is named by the option `store` or by TIERFS_STORE

A path keeps the form it was given in: listing `/srv/store/logs` gives `/srv/store/logs/web`, and listing `logs` gives
`logs/web`, because fsspec compares the names it lists with the name it asked for.
"""

from __future__ import annotations

import os

from tierfs.app.sources import URL_PREFIX, below, store_of
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable

PROTOCOL = "tierfs"


def strip(url: str) -> str:
    """Return the path of a URL, without a slash at its end; a path stays unchanged, and the root is empty."""
    return url.removeprefix(URL_PREFIX).rstrip("/")


def is_url(where: str) -> bool:
    """Return whether a store is named by the URL of its bucket, not by its directory."""
    return "://" in where


def name_in(store: str, path: str) -> str:
    """Return the name in `store` of a path's segment or directory.

    Raises InvalidRequest for a path into another store.
    """
    if not path.startswith("/"):
        return path
    if not is_url(store) and (inside := below(store, path)) is not None:
        return inside
    other = store_of(path)
    if other is not None and (is_url(store) or os.path.realpath(other) != os.path.realpath(store)):
        raise InvalidRequest(
            f"{printable(path)} is in the store {printable(other)}, but this filesystem is for {printable(store)}",
            remedy=f"open it as {URL_PREFIX}{printable(path)}, without another store in storage_options",
        )
    return path.strip("/") if other is None else below(other, path) or ""
