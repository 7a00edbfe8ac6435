"""Whether a place for a new store lies inside another store's, or above one: then neither could tell whose is what.

A few listings, whatever lies there: one per prefix above, and below it one per name found, up to a bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path

from tierfs.background.journal_names import JOURNAL_PREFIX
from tierfs.background.store_mark import MARK_NAME
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.config import ColdSettings
from tierfs.connect import FILE_SCHEME, connect_bare
from tierfs.errors import AlreadyExists, NotFound, PermissionDenied
from tierfs.metadata.records import LocationRecord
from tierfs.names import printable

_PAGE = 1000
"""Objects of one listing request of S3."""

_MOST_LISTINGS = 20
"""Directories looked into below a prefix that is not empty. A guess: nobody nests stores below that many others."""

_LAST = "\U0010ffff"
"""Behind every name that begins with what stands before it."""

_OF_A_STORE = re.compile(rf"(?P<prefix>.+)/({JOURNAL_PREFIX}(checkpoint-)?\d{{20}}|{MARK_NAME})", re.DOTALL)


def refuse_nested(location: LocationRecord, store: Path, storage: ChunkStorage, settings: ColdSettings) -> None:
    """Raise AlreadyExists when another store's cold tier is above or below a location; `storage` is connected to it."""
    for above in _above(location, store):
        if _holds_a_store(above, store, settings):
            raise _nested(location, f"lies inside the cold tier of another store, {printable(above.url)}")
    below = _store_below(storage)
    if below is not None:
        raise _nested(location, f"has the cold tier of another store below it, in {printable(below)}/")


def _nested(location: LocationRecord, how: str) -> AlreadyExists:
    return AlreadyExists(f"{printable(location.url)} {how}", remedy="choose another prefix or directory")


def _above(location: LocationRecord, store: Path) -> Iterator[LocationRecord]:
    """The places above, nearest first."""
    if location.url.startswith(FILE_SCHEME):
        directory = (store / location.url.removeprefix(FILE_SCHEME)).resolve()
        for parent in directory.parents:
            yield replace(location, url=f"{FILE_SCHEME}{parent}", writable=False)
        return
    scheme, _, path = location.url.partition("://")
    bucket, *parts = path.split("/")
    while parts:
        parts.pop()
        yield replace(location, url=f"{scheme}://{'/'.join([bucket, *parts])}", writable=False)


def _holds_a_store(place: LocationRecord, store: Path, settings: ColdSettings) -> bool:
    """Whether a journal is there. Keys that may not look above their own prefix cannot tell: then not."""
    try:
        with closing(connect_bare(place, store, settings)) as storage:
            first = next(storage.list(JOURNAL_PREFIX), None)
    except (PermissionDenied, NotFound):
        return False
    return first is not None and _OF_A_STORE.fullmatch(f"x/{first.name}") is not None


def _store_below(storage: ChunkStorage) -> str | None:
    """The first prefix found that is a store's; of very many names only the first of each directory are looked at."""
    after = ""
    for _ in range(_MOST_LISTINGS):
        page = list(islice(storage.list("", after=after), _PAGE))
        for found in page:
            match = _OF_A_STORE.fullmatch(found.name)
            if match is not None:
                return match["prefix"]
        if len(page) < _PAGE:
            return None
        directory, slash, _ = page[-1].name.partition("/")
        after = f"{directory}/{_LAST}" if slash else page[-1].name
    return None
