"""The grammar of a segment's dump. A dump that holds anything else is refused as a whole, before anything is written.

    dump = segment [policy] [ledger] {{checksums} link}

A dump lies in the bucket, where others may write, and loading it changes its one segment (invariant 15): all links are
that segment's, the policy is its own, and its objects are used by no other segment. A pack is: its record and its
checksums stay as the store has them.
"""

from __future__ import annotations

from collections.abc import Iterable

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.bytes.recoveries import last
from tierfs.base.words import names
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.types import LocationId, SegmentKind, SegmentStatus
from tierfs.engine.journal import replay
from tierfs.engine.metadata import archive_place, empty_ledgers, message_rows, policies, tables, untrusted
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.epoch_numbers import MAX_EPOCH
from tierfs.engine.metadata.record_parts import OwnerView, WriterInfo
from tierfs.engine.metadata.records import ObjectRecord, SegmentRecord, TierState
from tierfs.engine.metadata.tables import CHECKSUMS, CHUNKS, INTENTS, LEDGERS, LOCATIONS, OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.metadata.untrusted import require

# Limit of ids and counters: a store goes on after the greatest it has seen, so as many are left for others.
_MAX_NUMBER = untrusted.MAX_ID // 2

_STEPS = {"segment": 0, "policy": 1, "ledger": 2, "checksums": 3, "cold_link": 3}


@dataclass(frozen=True, slots=True)
class Head:
    """The fields that all messages of a dump share."""

    store_id: str
    path: str
    written_ms: int
    epoch: int
    sequence: int

    @classmethod
    def of(cls, piece: pb.SegmentDump) -> Head:
        """Return the head of a message."""
        return cls(piece.store_id, piece.path, piece.written_ms, piece.store_epoch, piece.sequence)


@dataclass(slots=True)
class Contents:
    """What a dump holds, as far as it was read: `link` reads the rest again."""

    name: str
    head: Head
    segment: pb.SegmentRecord = field(default_factory=pb.SegmentRecord)
    objects: dict[int, ObjectRecord] = field(default_factory=dict)
    shared: frozenset[int] = frozenset()
    """Those that the store has: packs, with chunks of other segments."""

    @property
    def path(self) -> str:
        """Full name of the segment."""
        return self.head.path

    def without_shared(self, change: pb.Change) -> pb.Change | None:
        """Return a change without what it says of objects that the store has; None where nothing is left of it."""
        if change.HasField("checksums"):
            return None if change.checksums.object.id in self.shared else change
        kept = pb.Change()
        kept.CopyFrom(change)
        kept.cold_link.ClearField("objects")
        kept.cold_link.ClearField("checksums")
        kept.cold_link.objects.extend(item for item in change.cold_link.objects if item.id not in self.shared)
        runs = (run for run in change.cold_link.checksums if run.object_id not in self.shared)
        kept.cold_link.checksums.extend(runs)
        return kept


def read(
    pieces: Iterable[pb.SegmentDump],
    name: str,
    own_location: LocationId,
    archive_location: LocationId = archive_place.NONE,
) -> Contents:
    """Return the contents of a dump, which lies under this name. Raises DataLoss for anything but the grammar's."""
    grammar: _Grammar | None = None
    for piece in pieces:
        try:
            grammar = grammar or _Grammar(name, piece, own_location, archive_location)
            grammar.take(piece)
        except DataLoss as exc:
            raise refused(name, exc) from exc
    try:
        require(grammar is not None, "it is empty")
        assert grammar is not None
        return grammar.end()
    except DataLoss as exc:
        raise refused(name, exc) from exc


def refused(name: str, reason: DataLoss | str) -> DataLoss:
    """Return the error of a dump that may not be loaded."""
    text = str(reason).removeprefix(untrusted.DAMAGED)
    remedy = reason.remedy if isinstance(reason, DataLoss) else None
    return DataLoss(f"{name} is refused, with nothing changed: {names.printable(text)}", remedy=remedy)


class _Grammar:
    """Checks the changes of a dump in their order."""

    def __init__(
        self, name: str, first: pb.SegmentDump, own_location: LocationId, archive_location: LocationId
    ) -> None:
        self._contents = Contents(name, Head.of(first))
        self._own_location = own_location
        self._archive_location = archive_location
        self._step = -1
        self._described: dict[int, bytes] = {}
        self._names: dict[tuple[int, str], int] = {}
        self._used = set[int]()
        self._end = 0
        _check_path(self._contents.path)
        require(first.store_epoch <= MAX_EPOCH and first.sequence <= _MAX_NUMBER, "an impossible position")

    def take(self, piece: pb.SegmentDump) -> None:
        """Check the next message."""
        require(Head.of(piece) == self._contents.head, "its parts are of several dumps")
        for change in piece.changes:
            kind = change.WhichOneof("body") or "a change of an unknown kind"
            step = _STEPS.get(kind)
            require(step is not None, f"a segment's dump cannot contain {kind}")
            assert step is not None
            in_order = step > self._step or step == self._step == _STEPS["cold_link"]
            require(in_order and (self._step >= 0 or not step), f"{kind} in a forbidden place")
            # A numbered change would be taken for one of the journal, and move the store's position in it.
            require(change.sequence == 0, "a change with a number of the journal", change.sequence)
            self._step = step
            getattr(self, f"_{kind}")(getattr(change, kind))

    def end(self) -> Contents:
        """Return the contents after the last message."""
        require(self._step >= 0, "it has no segment")
        require(self._used == set(self._contents.objects), "it describes objects that it does not use")
        return self._contents

    @property
    def _id(self) -> int:
        return self._contents.segment.id

    def _segment(self, message: pb.SegmentRecord) -> None:
        record: SegmentRecord = SEGMENTS.codec.from_message(message)
        untrusted.check_segment(record)
        record.check()
        here = (record.local, record.writer, record.owner_view, record.active, record.resumable)
        require(here == (TierState(), WriterInfo(), OwnerView(), False, False), "a segment with state of another host")
        require(record.status is not SegmentStatus.DELETED, "a segment that is being removed")
        require(record.name == names.split(self._contents.path)[-1], "a segment of another name")
        require(self._contents.name.startswith(f"dumps/{record.id}-"), "a segment other than that of its name")
        numbers: tuple[int, ...] = (
            record.id,
            record.inode,
            record.commit_id,
            record.unsealed_id,
            last(record.recoveries),
            record.joins.last_recovery,
        )
        numbers += (record.successor_id, record.predecessor_id)
        require(max(*numbers, record.writer_epoch, record.generation) <= _MAX_NUMBER, "a counter near its end")
        untrusted.check_times(record.first_byte_ms)
        if record.stream_name:
            untrusted.check_component(record.stream_name)
        self._contents.segment = message

    def _policy(self, message: pb.PolicyRecord) -> None:
        require(message.target_id == self._id, "a policy of something else", message.target_id)
        replay.read_policy(message)

    def _ledger(self, message: pb.LedgerRecord) -> None:
        of_this = message.segment_id == self._id and self._contents.segment.kind == SegmentKind.LEDGER
        require(of_this, "a ledger of something else", message.segment_id)
        ledger = LEDGERS.codec.from_message(message)
        untrusted.check_unchunked(empty_ledgers.object_of(ledger, self._own_location), self._own_location)

    def _checksums(self, message: pb.ObjectChecksums) -> None:
        self._object(message.object)
        self._runs(message.runs, {message.object.id})

    def _cold_link(self, message: pb.ColdLink) -> None:
        require(message.segment_id == self._id, "links of another segment", message.segment_id)
        require(bool(message.chunks), "a link without chunks")
        for described in message.objects:
            self._object(described)
        self._runs(message.checksums, {described.id for described in message.objects})
        for chunk in message.chunks:
            self._chunk(chunk)

    def _runs(self, runs: Iterable[pb.ChecksumRun], described: set[int]) -> None:
        for run in runs:
            require(run.object_id in described, "checksums of an object that is not linked", run.object_id)
            untrusted.check_run(CHECKSUMS.codec.from_message(run), self._contents.objects[run.object_id])

    def _chunk(self, message: pb.ChunkRecord) -> None:
        record = CHUNKS.codec.from_message(message)
        stored = self._contents.objects.get(record.object_id) if record.object_id else None
        untrusted.check_chunk(record, stored)
        require(record.start_offset >= self._end, "chunks out of order", record.start_offset)
        require(record.end_offset <= self._contents.segment.length, "a chunk beyond the segment", record.start_offset)
        self._end = record.end_offset
        if stored is not None:
            self._used.add(stored.id)

    def _object(self, message: pb.ObjectRecord) -> None:
        record = OBJECTS.codec.from_message(message)
        described = message.SerializeToString(deterministic=True)
        require(self._described.setdefault(record.id, described) == described, "an object twice, and not the same")
        if record.id in self._contents.objects:
            return
        untrusted.check_object(record, self._own_location, self._archive_location)
        require(max(record.id, record.linked_sequence) <= _MAX_NUMBER, "a counter near its end")
        require(
            not record.encoding.is_ledger or record.segment_id == self._id, "an object of another ledger", record.id
        )
        for place, name in stored_names(record, self._own_location):
            require(self._names.setdefault((place, name), record.id) == record.id, "two objects of one name", name)
        self._contents.objects[record.id] = record


def _check_path(path: str) -> None:
    try:
        parts = names.split(path)
    except InvalidRequest as exc:
        require(False, f"an impossible name: {exc}")
    require(bool(parts) and names.join(parts) == path and not names.is_removed(path), "an impossible name")


def stored_names(record: ObjectRecord, own_location: LocationId) -> list[tuple[int, str]]:
    """Return location and name of each stored object of a record: itself, and those beside it."""
    beside = [(record.location_id, record.index_name), (own_location, record.entries_name)]
    return [(record.location_id, record.name), *(item for item in beside if item[1])]


def require_alone(txn: ReadTransaction, contents: Contents, *, first_id: int = 0) -> None:
    """Raise DataLoss unless no other segment, and no write under way, uses the objects of a dump.

    Notes the packs that the store has. One pass over the objects from `first_id` on, some 2 s for a million.
    """
    own_location = txn.store.cold_location_id
    wanted = {
        place
        for record in contents.objects.values()
        for place in stored_names(record, own_location)
        if not record.foreign or place[1] == record.entries_name
    }
    shared = {number for number in contents.objects if _is_shared(txn, contents.objects[number], contents.name)}
    for key, row in message_rows.messages(txn, OBJECTS, tables.u64(first_id)):
        if row is None or tables.read_u64(key) in shared:
            continue
        beside = ((row.location_id, row.index_name), (own_location, row.entries_name))
        for place in ((row.location_id, row.name), *beside):
            if place in wanted:
                raise refused(contents.name, f"object {place[1]} is used by another segment")
    _require_free_names(txn, contents, {name for _, name in wanted}, adopted_too=not first_id)
    contents.shared = frozenset(shared)


def _is_shared(txn: ReadTransaction, record: ObjectRecord, dump: str) -> bool:
    """Return whether the store has an object, which must be the same, and one that several segments may have.

    Raises DataLoss. Nothing that the dump says of it is taken over, and its chunks add references alone.
    """
    stored = txn.get(OBJECTS, tables.u64(record.id))
    if stored is None:
        return False

    def facts(item: ObjectRecord) -> tuple[object, ...]:
        # An object that moved to the archive, or back, has another name and place by now, and the same bytes.
        where = (item.location_id, item.name) if item.foreign or item.crc32c is None else ()
        physical = (item.tier, where, item.length, item.foreign, item.crc32c)
        return (*physical, item.encoding, item.stored_length, item.index_name, item.entries_name)

    # Segments share packs, and clones any object but a ledger's.
    if record.encoding.is_ledger or bool(stored.packed) != bool(record.packed) or facts(stored) != facts(record):
        raise refused(dump, f"object {stored.name} is used by another segment")
    return True


def _require_free_names(txn: ReadTransaction, contents: Contents, wanted: set[str], *, adopted_too: bool) -> None:
    place = txn.get(LOCATIONS, tables.u32(txn.store.cold_location_id)) if adopted_too else None
    adopted = policies.foreign_names_below(txn, place) if place is not None else set()
    for name in sorted(wanted & adopted):
        raise refused(contents.name, f"object {name} was adopted, and does not belong to the store")
    begun = [intent.name for _, intent in txn.scan(INTENTS)]
    for name in wanted:
        if any(name == other or (other.endswith("/") and name.startswith(other)) for other in begun):
            raise refused(contents.name, f"object {name} is being written")
