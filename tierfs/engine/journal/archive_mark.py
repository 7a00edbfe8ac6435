"""What proves the archive place of a store (invariant 12): the mark there says that it is this store's.

It has no journal: the fence is that of the cold tier. An unmounted NAS, an emptied bucket and another store's place
have no such mark, and nothing is moved to them, or deleted for them or in them.

The cold tier has a note that there is such a place, as the objects there alone are not all bytes of the store.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import (
    AlreadyExists,
    DataLoss,
    NotFound,
    PermissionDenied,
    TierfsError,
    Unavailable,
    WrongColdTier,
)
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.engine.journal import store_mark
from tierfs.engine.journal.asked import is_recent
from tierfs.engine.journal.publish import PROOF_S
from tierfs.engine.metadata import archive_place
from tierfs.engine.metadata.records import LocationRecord, StoreRecord
from tierfs.engine.metadata.store import MetadataStore

# Object at the root of the cold tier of a store that has an archive place.
NOTE_NAME = "tierfs-archive"

_NOTE = "this store has objects in another place, too; leave this object here"

_MOST_NOTE_BYTES = 4096

_REMEDY = "mount it, or check bucket and endpoint; its mark is the object tierfs-store"


def away(why: str) -> WrongColdTier:
    """Return the error of a place that is not the store's archive place."""
    return WrongColdTier(f"this is not the store's archive place: {why}", remedy=_REMEDY)


def write(storage: ChunkStorage, store: StoreRecord) -> None:
    """Mark a place as the archive of a store; a mark of the same is success. Raises AlreadyExists for any other."""
    mark = replace(store_mark.mark_of(store), is_archive=True)
    store_mark.write_mark(storage, mark)
    if not is_ours(storage, store.store_id):
        raise AlreadyExists(f"{storage!r} is not an archive place", remedy="choose another prefix or directory")


def is_ours(storage: ChunkStorage, store_id: str) -> bool:
    """Return whether a place is marked as the archive of a store. Raises DataLoss for a damaged mark."""
    mark = store_mark.read(storage)
    return mark is not None and mark.is_archive and mark.store_id == store_id


def require(storage: ChunkStorage, store_id: str) -> None:
    """Raise WrongColdTier unless the mark is there, and what the storage raises."""
    try:
        ours = is_ours(storage, store_id)
    except (NotFound, DataLoss) as exc:
        raise away(str(exc)) from exc
    if not ours:
        raise away(f"{storage!r} has no mark of it")


@dataclass(frozen=True, slots=True)
class Note:
    """The address of the archive place as the cold tier has it: untrusted, and empty where it cannot be read."""

    url: str = ""
    endpoint_url: str = ""
    region: str = ""

    @property
    def address(self) -> str:
        """It as the setting `cold.allowed_locations` names a place."""
        return f"{self.url}@{self.endpoint_url}" if self.endpoint_url else self.url


def write_note(cold: ChunkStorage, place: LocationRecord) -> None:
    """Note in the cold tier that the store has an archive place, and where."""
    fields = {"tierfs": _NOTE, "place": place.url, "endpoint_url": place.endpoint_url, "region": place.region}
    data = json.dumps(fields, indent=2).encode() + b"\n"
    cold.put(NOTE_NAME, BufferSource(data), create_only=False)


def read_note(cold: ChunkStorage) -> Note | None:
    """Return the note in a cold tier; None without one."""
    try:
        stat = cold.stat(NOTE_NAME)
        buffer = bytearray(min(stat.length_bytes, _MOST_NOTE_BYTES))
        cold.read_into(NOTE_NAME, 0, memoryview(buffer))
    except NotFound:
        return None
    try:
        fields: Any = json.loads(buffer)
        texts = [fields.get(key, "") for key in ("place", "endpoint_url", "region")]
    except (ValueError, AttributeError, RecursionError):
        return Note()
    return Note(*(text if isinstance(text, str) else "" for text in texts))


def remove_note(cold: ChunkStorage) -> None:
    """Remove the note: the store has no archive place any more."""
    cold.delete(NOTE_NAME)


class ArchiveProof:
    """Proves the archive place of one store before each batch of moves and deletions. Thread-safe."""

    def __init__(self, metadata: MetadataStore, connect: Callable[[LocationRecord], ChunkStorage]) -> None:
        """`connect` returns the connection to the place."""
        self._metadata = metadata
        self._connect = connect
        self._lock = threading.Lock()
        self._asked: tuple[LocationRecord, float, TierfsError | None] | None = None
        """The place that was looked at last, the time since boot, and why it is not proved."""

    def require(self) -> None:
        """Raise unless the place was proved in the last PROOF_S, or is now.

        Raises WrongColdTier, PermissionDenied for a place that only a journal named, and what the storage raises.
        """
        error = self.why_not()
        if error is not None:
            raise type(error)(str(error), remedy=error.remedy) from error

    def why_not(self) -> TierfsError | None:
        """Return why the place is not proved, None if it is: an answer is good for PROOF_S."""
        with self._metadata.read() as txn:
            place, store_id = archive_place.find(txn), txn.store.store_id
        if place is None:
            return Unavailable("the store has no archive place", remedy="set it: tierfs config archive.place=URL")
        now_s = self._metadata.clock.boot_s()
        with self._lock:
            if self._asked is None or self._asked[0] != place or not is_recent(self._asked[1], now_s, PROOF_S):
                self._asked = place, now_s, self._look(place, store_id)
            return self._asked[2]

    def require_now(self) -> None:
        """Do as `require`, by a look at the place now."""
        with self._lock:
            self._asked = None
        self.require()

    def _look(self, place: LocationRecord, store_id: str) -> TierfsError | None:
        try:
            require_set_here(place)
            require(self._connect(place), store_id)
        except TierfsError as exc:
            return exc
        return None


def require_set_here(place: LocationRecord) -> None:
    """Raise PermissionDenied for a place that only a journal named: nothing is written or deleted there."""
    if place.from_journal:
        raise PermissionDenied(
            f"the archive place {printable(place.url)} is only in the bucket's journal",
            remedy=f"to use it on this host: tierfs config archive.place={printable(place.url)}",
        )
