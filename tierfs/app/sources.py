"""Open the store that a data frame names: a directory, or a bucket whose journal is followed by a replica here.

Each Python worker of Spark imports this: what only a replica needs is imported by the first URL.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from tierfs.app.store import Store, open_store
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import InvalidRequest, NotFound

STORE_VARIABLE = "TIERFS_STORE"
URL_PREFIX = "tierfs://"


def open_source(
    where: str | None = None,
    *,
    endpoint_url: str | None = None,
    region: str | None = None,
    profile: str | None = None,
) -> Store:
    """Open the store in the directory `where` (TIERFS_STORE by default), or a replica of a bucket's URL.

    A URL is that of a cold tier: `s3://BUCKET/PREFIX`, `file:///DIR`, or of another place. The caller closes the store.
    Raises InvalidRequest where none is named, NotFound where there is no store or journal, DataLoss for a journal that
    cannot be read, and what the storage raises.
    """
    where = where or os.environ.get(STORE_VARIABLE)
    if not where:
        raise InvalidRequest(
            "no store is given",
            remedy=f"set the option store, or {STORE_VARIABLE}: a directory or s3://B/P",
        )
    if "://" not in where:
        return open_store(Path(where))
    from tierfs.app import replica
    from tierfs.engine.chunkstore.place import Place, Server

    return replica.open_replica(Place.parsed(where, Server(endpoint_url or "", region or "", profile or "")))


def split_url(text: str) -> tuple[str | None, str]:
    """Split `tierfs:///STORE/NAME` into store and name; no store for `tierfs://NAME` and a bare name.

    Raises NotFound where no part of the path is a store.
    """
    path = text.removeprefix(URL_PREFIX)
    if path == text or not path.startswith("/"):
        return None, path
    store = store_of(path)
    if store is None:
        raise NotFound(f"no part of {text} is a store", remedy="write tierfs:///STORE/NAME, or set the option store")
    return store, below(store, path) or ""


def store_of(path: str) -> str | None:
    """Return the store that an absolute path leads into, its longest leading part that is one; None where none is."""
    if not path.startswith("/"):
        return None
    place = PurePosixPath(os.path.normpath(path))
    for candidate in (place, *place.parents):
        if StorePaths(Path(candidate)).settings.is_file():
            return str(candidate)
    return None


def below(store: str, path: str) -> str | None:
    """Return the part of a path after the store's directory; None where the path does not begin with it."""
    whole, directory = PurePosixPath(os.path.normpath(path)), PurePosixPath(os.path.normpath(store))
    if not whole.is_relative_to(directory):
        return None
    inside = str(whole.relative_to(directory))
    return "" if inside == "." else inside
