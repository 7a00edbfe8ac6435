"""Whether another store's cold tier is above or below a new one.

Then neither store could tell its objects from the other's. Checking that takes a few listings: one per prefix above,
and below it one per name found, up to a bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice

from tierfs.base.words.errors import (
    AlreadyExists,
    NotFound,
    PermissionDenied,
)
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.place import FILE_SCHEME, Place
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.chunkstore.s3.location import S3_SCHEME
from tierfs.engine.chunkstore.validate import MARK_NAME
from tierfs.engine.journal import store_mark
from tierfs.engine.journal.names import JOURNAL_PREFIX

# Objects of one listing request of S3.
_PAGE = 1000

# Directories looked into below a prefix that is not empty. A guess: stores are not nested below that many others.
_MOST_LISTINGS = 20

# After every name that begins with the text before it.
_LAST = "\U0010ffff"

_OF_A_STORE = re.compile(rf"(?P<prefix>.+)/({JOURNAL_PREFIX}(checkpoint-)?[0-9]{{20}}|{MARK_NAME})", re.DOTALL)


def refuse_nested(place: Place, storage: ChunkStorage) -> None:
    """Raise AlreadyExists when another store's cold tier is above or below a place; `storage` is connected to it."""
    for above in _above(place):
        if _is_a_store(above):
            raise _nested(place, f"is inside the cold tier of another store, {printable(above.record.url)}")
    below = _store_below(storage)
    if below is not None:
        raise _nested(place, f"has the cold tier of another store below it, in {printable(below)}/")


def _nested(place: Place, how: str) -> AlreadyExists:
    return AlreadyExists(f"{printable(place.record.url)} {how}", remedy="choose another prefix or directory")


def _above(place: Place) -> Iterator[Place]:
    """Yield the places above, nearest first."""
    for url in _urls_above(place):
        yield replace(place, record=replace(place.record, url=url, writable=False))


def _urls_above(place: Place) -> Iterator[str]:
    url = place.record.url
    if place.directory is not None:
        for parent in place.directory.resolve().parents:
            yield f"{FILE_SCHEME}{parent}"
        return
    scheme, _, path = url.partition("://")
    from tierfs.engine.chunkstore.places import address

    if scheme != S3_SCHEME and not address.is_known(url):
        return  # only the package that serves the URL knows what is above
    bucket, *parts = path.split("/")
    while parts:
        parts.pop()
        yield f"{scheme}://{'/'.join([bucket, *parts])}"


def _is_a_store(place: Place) -> bool:
    """Return whether a journal is there, or the mark of an archive place; False for keys that may not look above their
    own prefix."""
    try:
        with closing(place.open()) as storage:
            if store_mark.is_there(storage):
                return True
            first = next(storage.list(JOURNAL_PREFIX), None)
    except (PermissionDenied, NotFound):
        return False
    return first is not None and _OF_A_STORE.fullmatch(f"x/{first.name}") is not None


def _store_below(storage: ChunkStorage) -> str | None:
    """Return the first prefix found that is a store's; of very many names, check only the first of each directory."""
    after = ""
    for _ in range(_MOST_LISTINGS):
        page = list(islice(storage.list("", after=after), _PAGE))
        for stored in page:
            match = _OF_A_STORE.fullmatch(stored.name)
            if match is not None:
                return match["prefix"]
        if len(page) < _PAGE:
            return None
        directory, slash, _ = page[-1].name.partition("/")
        after = f"{directory}/{_LAST}" if slash else page[-1].name
    return None
