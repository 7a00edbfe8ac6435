"""The archive place of a store that is recovered from its objects: the command names it, or it is noted and allowed.

An address that is only noted is not used, because everybody who can write to the cold tier could note one. The mark in
the place proves it (journal/archive_mark.py), before anything is written there: a bare mount point has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import DataLoss, InvalidRequest, NotDirectory, NotFound, WrongColdTier
from tierfs.base.words.names import as_word, printable
from tierfs.base.words.types import LocationId
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal import archive_mark, store_mark
from tierfs.engine.journal.archive_mark import Note
from tierfs.engine.metadata import archive_place, policies
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.store import MetadataStore

# Parts of the server of an archive place, and the options that name them.
_OPTIONS = {"endpoint_url": "--archive-endpoint-url", "region": "--archive-region"}


@dataclass(frozen=True, slots=True)
class GivenArchive:
    """An archive place that was proved, and the connection to it."""

    record: LocationRecord
    storage: ChunkStorage


@contextmanager
def reached(cold: ChunkStorage, tier: Place, given: Place | None) -> Iterator[GivenArchive | None]:
    """Yield the archive place of the store in a cold tier; None for a store without one.

    Raises InvalidRequest where `tier` is an archive place itself, and for a place that is noted and neither given nor
    allowed; WrongColdTier for one that is not marked as the archive of this store; and what the place raises.
    """
    marked = _mark_of(cold)
    if marked is not None and marked.is_archive:
        raise InvalidRequest(
            f"{cold!r} is the archive place of a store, with a part of its objects",
            remedy="name its cold tier, and this place by --archive-place",
        )
    place = given or _allowed(cold, tier)
    if place is None:
        yield None
        return
    place = place.of_store(tier.store)
    try:
        bare = place.open()
    except (NotFound, NotDirectory) as exc:
        raise archive_mark.away(str(exc)) from exc
    with closing(bare):
        mark = _required_mark(bare)
        if marked is not None and marked.store_id != mark.store_id:
            raise WrongColdTier(
                f"{bare!r} is the archive place of the store {mark.store_id}, and {cold!r} is of {marked.store_id}",
                remedy="name the places of one store",
            )
        place = place.probed(bare)
    number = LocationId(tier.record.id + 1)
    record = replace(place.record, id=number, writable=True, archive=True, from_journal=False)
    with closing(place.shared(NullMetrics())) as storage:
        yield GivenArchive(record, storage)


def warnings_of(paths: StorePaths, metadata: MetadataStore) -> tuple[str, ...]:
    """Return that this host may not use the archive place of a store that was made from a journal; with the command."""
    with metadata.read() as txn:
        place = archive_place.find(txn)
    if place is None or not place.from_journal:
        return ()
    root, url = as_word(str(paths.root)), as_word(place.url)
    return (
        f"the archive place {policies.told(place)} is not allowed on this host yet, so reads of objects there fail; to "
        f"allow it: tierfs --store {root} config archive.place={url}",
    )


def _mark_of(storage: ChunkStorage) -> store_mark.StoreMark | None:
    try:
        return store_mark.read(storage)
    except DataLoss:
        return None


def _required_mark(storage: ChunkStorage) -> store_mark.StoreMark:
    try:
        mark = store_mark.read(storage)
    except (NotFound, DataLoss) as exc:
        raise archive_mark.away(str(exc)) from exc
    if mark is None or not mark.is_archive:
        raise archive_mark.away(f"{storage!r} has no mark of one")
    return mark


def _allowed(cold: ChunkStorage, tier: Place) -> Place | None:
    """Return the noted place, None without a note. Raises InvalidRequest unless the settings allow it."""
    note = archive_mark.read_note(cold)
    if note is None:
        return None
    if note.address in tier.settings.allowed_locations.split():
        parts = {"url": note.url, "endpoint_url": note.endpoint_url, "region": note.region}
        return Place.unknown(tier.store, tier.settings).changed(parts)
    raise InvalidRequest(
        f"the store of {cold!r} has objects in an archive place, too: {printable(note.url)}",
        remedy=f"name it: {_words(note)}",
    )


def _words(note: Note) -> str:
    """Return the options that name a place."""
    options = {"--archive-place": note.url or "URL"}
    options |= {option: getattr(note, key) for key, option in _OPTIONS.items() if getattr(note, key)}
    return " ".join(f"{option} {printable(as_word(value))}" for option, value in options.items())
