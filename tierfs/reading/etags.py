"""Current etags of objects whose records name others: an etag is a hint, the CRC32C is the truth.

An object that was copied or restored has the same bytes and another etag. It is read under the etag that its place
reports, and the reader reports when the bytes matched: then the etag is written into the object's record and the
journal, many at a time, so that the next process requests the right one at once. A process without the store's
metadata, as an executor of Spark, remembers them for its own reads.

Shared state: etags met (by readers in threads) and those proved, under one lock. Any process of the store may write
adopted etags: the record is read again in the transaction, and an object deleted or adopted meanwhile is skipped. A
store that must not change anything keeps them in memory.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.metrics import MetricSink
from tierfs.base.words.errors import Conflict, PermissionDenied, TierfsError
from tierfs.base.words.names import printable
from tierfs.base.words.types import ObjectId
from tierfs.engine.chunkstore.protocol import ChunkStorage, EtagDiffers
from tierfs.engine.metadata import changes, tables
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.reading.plain_bytes import NoRows, PlainBytes, StoreRows

log = logging.getLogger(__name__)

# After so many different etags the object is read without one (a guess).
_TRIES = 3

# Objects with another etag that one process remembers: about 20 MB.
_REMEMBERED = 65536

# Records written in one transaction: about 1 MB of changes, some 30 ms of the writer's lock.
ADOPTED_AT_ONCE = 1000

# Of one object by one process, so that a server whose etags keep changing cannot fill the journal.
MOST_ADOPTIONS = 3


@dataclass(frozen=True, slots=True)
class NewEtag:
    """The current etag of an object whose record names another."""

    record: ObjectRecord
    etag: str


@dataclass(slots=True)
class _MetEtag:
    """An object met under another etag."""

    etag: str
    length_bytes: int | None
    adoptions: int = 0
    proved: bool = False


@dataclass(slots=True)
class Attempt:
    """One read under one etag. A context: an EtagDiffers is noted for the next attempt."""

    _etags: Etags
    _record: ObjectRecord
    etag: str | None
    differed: bool = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if self.etag is None or not isinstance(error, EtagDiffers):
            return False
        self._etags.meet(self._record, error.etag, error.length_bytes)
        self.differed = True
        return True


class Etags:
    """The etags of objects as one process knows them. Thread-safe."""

    def __init__(self, metadata: MetadataStore | None, metrics: MetricSink | None = None) -> None:
        """Begin with the records' etags. Without metadata a task knows the positions of plain bytes itself."""
        self._metadata = metadata
        self.plain = PlainBytes(NoRows() if metadata is None else StoreRows(metadata), metrics)
        self._lock = threading.Lock()
        self._met: OrderedDict[ObjectId, _MetEtag] = OrderedDict()
        self._proved: dict[ObjectId, NewEtag] = {}
        self._refused = False
        """Whether the store may change nothing."""

    @property
    def wait_for_adoption(self) -> bool:
        """Whether there are proved etags that are not written yet."""
        return bool(self._proved)

    def of(self, record: ObjectRecord) -> str:
        """Return the etag to request. Costs nothing while records and places agree."""
        if not self._met:
            return record.etag
        met = self._met.get(record.id)
        return record.etag if met is None else met.etag

    def attempts(self, record: ObjectRecord) -> Iterator[Attempt]:
        """Yield contexts in which to read an object under their etag, until one ends without EtagDiffers.

        The last one has no etag, for any version. The caller checks the bytes.
        """
        for number in range(_TRIES + 1):
            attempt = Attempt(self, record, self.of(record) if number < _TRIES else None)
            yield attempt
            if not attempt.differed:
                return

    def read_into(
        self,
        storage: ChunkStorage,
        record: ObjectRecord,
        offset: int,
        view: memoryview,
        plain: PlainBytes | None = None,
    ) -> str | None:
        """Fill `view` from an object, under any etag; see ChunkStorage.read_into.

        `plain` is that of a task that has its own. Returns the etag under which the bytes arrived, None for any.
        """
        for attempt in self.attempts(record):
            with attempt:
                (plain or self.plain).read_into(storage, record, offset, view, attempt.etag, None)
        return attempt.etag

    def meet(self, record: ObjectRecord, etag: str, length_bytes: int | None) -> None:
        """Note the etag and length that the object's place reports.

        Reads in flight together meet the same etag one after another; what one of them has proved stays proved.
        """
        with self._lock:
            met = self._met.pop(record.id, None)
            if met is not None and (met.etag, met.length_bytes) == (etag, length_bytes):
                self._met[record.id] = met
                return
            adoptions = 0 if met is None else met.adoptions
            self._met[record.id] = _MetEtag(etag, length_bytes, adoptions)
            self._proved.pop(record.id, None)
            if len(self._met) > _REMEMBERED:
                self._proved.pop(self._met.popitem(last=False)[0], None)
        if met is None:
            log.info("the etag of %s differs from its record, perhaps a copy", printable(record.name))

    def proved(self, record: ObjectRecord, etag: str | None) -> bool:
        """Note that bytes under this etag, None for any, match; return whether an etag waits to be adopted.

        They do not prove an etag met meanwhile: the object may have been replaced since.
        """
        if not self._met or record.id not in self._met:
            return False
        with self._lock:
            met = self._met.get(record.id)
            if met is None or met.etag != etag or met.proved or self._refused or not _may_be_adopted(met, record):
                return bool(self._proved)
            met.proved = True
            met.adoptions += 1
            self._proved[record.id] = NewEtag(record, met.etag)
            return True

    def adopt(self, at_least: int = 1, metadata: MetadataStore | None = None) -> int:
        """Write proved etags into records and journal, if at least so many wait; return how many.

        `metadata` is that of the store where the process did not begin with it.

        An error is logged and stops no read: etags not written are proved again by a later process.
        """
        with self._lock:
            if len(self._proved) < at_least:
                return 0
            proved, self._proved = list(self._proved.values()), {}
        try:
            metadata = metadata or self._metadata
            return 0 if metadata is None else adopt(metadata, proved)
        except (Conflict, PermissionDenied) as exc:  # a replica, or fenced: left to the owner
            self._refused = True
            log.info("changed etags were not written: %s", exc)
        except TierfsError as exc:
            log.warning("changed etags cannot be written: %s", exc)
        return 0


def adopt(metadata: MetadataStore, new_etags: Iterable[NewEtag]) -> int:
    """Write etags into the records of objects that still exist, and into the journal; return how many.

    Raises Fenced in a store that must not change anything.
    """
    waiting = list(new_etags)
    adopted = 0
    for first in range(0, len(waiting), ADOPTED_AT_ONCE):
        with metadata.write() as txn:
            for new in waiting[first : first + ADOPTED_AT_ONCE]:
                record = txn.get(OBJECTS, tables.u64(new.record.id))
                if record is None or _place(record) != _place(new.record) or record.etag == new.etag:
                    continue
                changes.put(txn, OBJECTS, replace(record, etag=new.etag))
                adopted += 1
    return adopted


def _may_be_adopted(met: _MetEtag, record: ObjectRecord) -> bool:
    """Return whether the etag is of the whole object as written, and not one of very many."""
    return bool(met.etag) and met.length_bytes == record.stored_bytes and met.adoptions < MOST_ADOPTIONS


def _place(record: ObjectRecord) -> tuple[int, str, int]:
    """Return the identity of an object apart from its etag."""
    return record.location_id, record.name, record.length
