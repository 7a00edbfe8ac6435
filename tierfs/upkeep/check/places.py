"""Tests whether copies and metadata can be read at all, before anything is called lost or damaged.

A place that cannot be reached makes nothing lost (invariant 13). The metadata is first read whole in a child process:
LMDB has no checksums and trusts its page numbers, so a damaged one is a SIGBUS or SIGSEGV, or a page that leads back
to itself. A child that dies of that, twice, or finds keys out of order, becomes a finding, and no other process dies. A
child that ends otherwise, or cannot start, proves nothing: the metadata could not be checked.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from tierfs.base.system import processes
from tierfs.base.words import errors
from tierfs.base.words.errors import DataLoss, NotFound, PermissionDenied, TierfsError, Unavailable, WrongColdTier
from tierfs.base.words.names import printable
from tierfs.base.words.types import LocationId, Tier
from tierfs.base.words.units import count
from tierfs.engine.chunkstore.located import PlaceSeen
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata import policies, tables
from tierfs.engine.metadata.environment import open_environment
from tierfs.engine.metadata.message_rows import messages
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction, read_transaction
from tierfs.upkeep.check.findings import RECOVER, Finding, Kind, Severity
from tierfs.upkeep.check.journal import JournalCheck
from tierfs.upkeep.check.unchunked import unchunked

# Objects of a place, spread over all of them, that must all be missing before the place counts as away (a guess).
_ASKED_FOR = 100

# With fewer objects than this and the store's journal present, a missing object is just missing.
_LEAST_OF_OURS = 2


class Places:
    """Examines each place once, when something is missing there. Thread-safe."""

    def __init__(self, metadata: MetadataStore, storage_of: Callable[[LocationId], ChunkStorage]) -> None:
        self._metadata = metadata
        self._storage_of = storage_of
        self._known: dict[LocationId, tuple[PlaceSeen, str | None]] = {}
        self._lock = threading.Lock()

    def away(self, location_id: LocationId) -> str | None:
        """Return the reason a place counts as unreachable, or None if it is reachable.

        Raises Unavailable and PermissionDenied when the store's own place does not answer.
        """
        with self._lock:
            known = self._known.get(location_id)
            if known is None or known[0].was_left():
                place = PlaceSeen(self._storage_of(location_id))
                known = self._known[location_id] = place, self._look(location_id)
            return known[1]

    def _look(self, location_id: LocationId) -> str | None:
        with self._metadata.read() as txn:
            place, store = policies.location(txn, location_id), txn.store
        own = location_id == store.cold_location_id
        try:
            storage = self._storage_of(location_id)
            if own and store.journal.published_sequence and not JournalCheck(self._metadata, storage).is_ours():
                return _text(place, "it holds no journal of this store")
            return self._missing(place, storage, own=own)
        except (NotFound, WrongColdTier) as exc:
            return _text(place, str(exc))
        except (Unavailable, PermissionDenied) as exc:
            if own:
                raise
            return _text(place, str(exc))

    def _missing(self, place: LocationRecord, storage: ChunkStorage, *, own: bool) -> str | None:
        ids, empty = self._ids(place.id), self._unchunked(place.id)
        if own and len(ids) < _LEAST_OF_OURS:
            return None
        for name in chain(self._spread(ids), empty[:: max(1, len(empty) // _ASKED_FOR)]):
            try:
                storage.stat(name)
            except NotFound:
                continue
            return None
        known = len(ids) + len(empty)
        return _text(place, f"it has none of its {count(known, 'object')}") if known else None

    def _unchunked(self, location_id: LocationId) -> list[str]:
        with self._metadata.read() as txn:
            return [record.name for _, record in unchunked(txn) if record.location_id == location_id]

    def _ids(self, location_id: LocationId) -> array[int]:
        with self._metadata.read() as txn:
            return array(
                "Q",
                (
                    record.id
                    for _, record in messages(txn, OBJECTS)
                    if record is not None and record.tier == Tier.COLD and record.location_id == location_id
                ),
            )

    def _spread(self, ids: array[int]) -> Iterator[str]:
        """Yield the names of some objects, from the first to the last."""
        step = max(1, len(ids) // _ASKED_FOR)
        with self._metadata.read() as txn:
            records = [txn.get(OBJECTS, tables.u64(number)) for number in {*ids[::step], *ids[-1:]}]
        yield from (record.name for record in records if record is not None)


def _text(place: LocationRecord, why: str) -> str:
    return f"{printable(place.url)} is not reachable: {why}"


# Exit code of a child that found an error and wrote it as JSON to standard output.
_FAILED = 1

# First line of a child that has everything it needs and begins to read.
_READING = "reading"

# Ends of a process that follows a damaged page of LMDB: a page that is not there, or one of its assertions.
_FAULTS = (signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT)

# One fault may be the machine's; the metadata is accused when every try ends in one.
_TRIES = 2


def probe(path: Path) -> Finding | None:
    """Read all metadata in directory `path` in a child process; return a finding if it cannot be read, or None.

    Raises any other error of opening it: NotFound, PermissionDenied, Conflict; Unavailable when the child fails for a
    reason that proves nothing about the metadata.
    """
    for _ in range(_TRIES):
        done = processes.run(processes.python(__name__, path))
        began, _, answer = done.stdout.partition("\n")
        if began != _READING or done.returncode > _FAILED or (done.returncode == _FAILED and not answer):
            raise _unchecked(done)
        if done.returncode == 0:
            return None
        if done.returncode == _FAILED:
            return _finding_of(json.loads(answer))
        if -done.returncode not in _FAULTS:
            raise _unchecked(done)
    return _unreadable(f"reading the metadata ended in {signal.Signals(-done.returncode).name}, {_TRIES} times")


def _finding_of(answer: Mapping[str, str]) -> Finding:
    kind = errors.named(answer["kind"])
    if not issubclass(kind, DataLoss):
        raise kind(answer["message"], remedy=answer["remedy"])
    return _unreadable(answer["message"])


def _unchecked(done: processes.Done) -> Unavailable:
    code = done.returncode
    end = f"signal {-code}" if code < 0 else f"exit code {code}"
    last = next((f": {printable(line)}" for line in reversed(done.stderr.strip().splitlines())), "")
    return Unavailable(
        f"the metadata could not be checked: the process that reads it ended with {end}{last}",
        remedy="nothing is known to be damaged; check this machine's memory and this installation: tierfs doctor",
    )


def read_everything(txn: ReadTransaction) -> int:
    """Read every row and return the number of rows. Raises DataLoss for keys out of order."""
    rows = 0
    for name in sorted(txn.database_names):
        last = b""
        for key, _ in txn.scan_raw(name):
            if key <= last:
                raise DataLoss(f"the keys of {name.decode()} are out of order")
            last = key
            rows += 1
    return rows


def _unreadable(text: str) -> Finding:
    return Finding(Kind.METADATA_UNREADABLE, Severity.DAMAGE, "metadata", text, remedy=RECOVER)


def _main() -> int:
    print(_READING, flush=True)
    try:
        with read_transaction(open_environment(Path(sys.argv[1]).resolve())) as txn:
            read_everything(txn)
    except TierfsError as exc:
        print(json.dumps({"kind": type(exc).__name__, "message": str(exc), "remedy": exc.remedy}))
        return _FAILED
    return 0


if __name__ == "__main__":
    sys.exit(_main())
