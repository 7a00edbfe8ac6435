"""Move a store's cold tier: copy it to another place, prove every byte there, and switch. Part of the composition root.

Steps: the place is shown to be another one, and marked as this store's, with a note that objects are missing ->
everything is copied while the store is used -> everything that has checksums, and the tables of objects, is read there
and proved -> the holder, which uploads nothing meanwhile, copies what is newer, records the place and removes the note.
A move that was stopped continues when it is run again. The place before is left as it is.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import NamedTuple

from tierfs.app.setup import place_change
from tierfs.app.setup.create import holds_a_store
from tierfs.app.setup.nesting import refuse_nested
from tierfs.app.setup.supported import require_settings
from tierfs.app.store import Store
from tierfs.app.unrestored import Unrestored
from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Pool
from tierfs.base.bytes.progress import Meter, OnProgress
from tierfs.base.words.errors import DataLoss, InvalidRequest, NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.types import ByteRange, LocationId, SegmentId, Tier
from tierfs.engine.chunkstore import probe
from tierfs.engine.chunkstore.paced import PacedStorage
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.probe import Trace
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject, supports_of
from tierfs.engine.chunkstore.validate import MARK_NAME
from tierfs.engine.journal import archive_mark, left, store_mark
from tierfs.engine.journal.names import JOURNAL_PREFIX
from tierfs.engine.metadata import policies, store_ownership, tables
from tierfs.engine.metadata.records import LocationRecord, ObjectRecord
from tierfs.engine.metadata.row_batches import batches
from tierfs.engine.metadata.tables import LOCATIONS, OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering.relocate import Copied, TierCopy
from tierfs.upkeep.check.scrub.pieces import ScrubPiece, pieces
from tierfs.upkeep.check.scrub.scrub import Scrubber
from tierfs.upkeep.check.scrub.tables import ObjectTables
from tierfs.upkeep.holder.perform import perform
from tierfs.upkeep.holder.verbs import PLACE, SWITCH

# Archived objects that are looked at at once, and rows per transaction (guesses).
_LOOKS, _BATCH = 16, 500


@dataclass(frozen=True, slots=True)
class TierMoved:
    """The result of a move."""

    before: LocationRecord
    after: LocationRecord
    copied: Copied
    damaged: tuple[str, ...]
    """Objects that were damaged or missing before, and are so still."""


def place_to(store: Store, wanted: Mapping[str, str]) -> Place:
    """Return the place that a move goes to, by the parts in which it differs. Raises NoColdTier, InvalidRequest."""
    return store.place_of(place_change.of_store(store.metadata, "move")).changed(wanted)


def move(store: Store, place: Place, report: OnProgress) -> TierMoved:
    """Move the cold tier to another place. Raises InvalidRequest for the present one under any name, and in a replica.

    Objects get the class of new ones. Raises Archived, with nothing copied, while some must be restored first,
    AlreadyExists for a place of another store, DataLoss for bytes that are not there what they are here, Fenced
    in a store that may not change, and what the storages raise; then the cold tier is where it was.
    """
    before = store.place_of(place_change.of_store(store.metadata, "move"))
    with store.metadata.read() as txn:
        store_ownership.require_owner(txn.store)
    if place.has_same_address(before):
        raise InvalidRequest(f"the cold tier is already at {policies.told(before.record)}")
    require_settings(place.record, store.settings.cold)
    with place_change.changing(store.paths, store.clock):
        with ExitStack() as stack:
            bare = stack.enter_context(closing(_connected(place)))
            with store.metadata.read() as txn:
                policies.require_supported(
                    txn, replace(place.record, max_object_bytes=supports_of(bare).max_object_bytes)
                )
            probe.require_writable(bare)
            is_marked = _is_marked(store, place, bare)
            _require_restored(store, before.record.id)
            trace = stack.enter_context(probe.trace(bare))
            if trace.is_at(store.storage_of(before.record.id)):
                raise _same_place(before, place)
            with store.metadata.read() as txn:
                record = txn.store
            if not is_marked:
                store_mark.write_mark(bare, store_mark.mark_of(record))
            left.begin_moving(bare, left.of_place(before.record, 0, record.store_id, store.clock.now_ms()))
            place = place.probed(bare)
            shared = stack.enter_context(closing(place.shared(store.metrics, sweeps=False)))
            target = PacedStorage(shared, store.limits.pace)
            moving = _Moving(store, before.record.id, target, report, trace)
            try:
                moving.copy()
            except InvalidRequest:
                if moving.is_inside:
                    left.end_moving(bare)
                    if not is_marked:
                        bare.delete(MARK_NAME)
                raise
            damaged = moving.prove()
        perform(store, SWITCH, "", {PLACE: LOCATIONS.codec.encode(place.record).hex()}, report)
    return TierMoved(before.record, place.record, moving.copied, tuple(damaged))


def _connected(place: Place) -> ChunkStorage:
    try:
        return place_change.connected(place)
    except NotFound as exc:
        raise NotFound(str(exc), remedy="create the directory, or mount its disk, first") from exc


def _is_marked(store: Store, place: Place, bare: ChunkStorage) -> bool:
    """Return whether the new place is marked as this store's; nothing is written to it.

    Raises AlreadyExists where another store is, or its parts.
    """
    marked = store_mark.read_store_id(bare)
    if marked == store.metadata.store_id:
        if archive_mark.is_ours(bare, marked):
            raise InvalidRequest(
                f"{policies.told(place.record)} is the archive place of this store", remedy="choose another place"
            )
        return True
    if marked is not None or next(bare.list(JOURNAL_PREFIX), None) is not None:
        raise holds_a_store(place)
    refuse_nested(place, bare)
    return False


def _require_restored(store: Store, location_id: LocationId) -> None:
    """Raise Archived while objects must be restored before they can be copied, as far as the records tell."""
    with store.metadata.read() as txn:
        if txn.sums is not None and not txn.sums.archived_objects:
            return
    unrestored = Unrestored(store.storage_of(location_id))

    def archived(_: ReadTransaction, rows: list[tuple[bytes, ObjectRecord]]) -> list[StoredObject]:
        records = [record for _, record in rows if record.location_id == location_id and record.archive_class]
        return [
            StoredObject(each.name, each.stored_bytes, each.etag, storage_class=each.archive_class) for each in records
        ]

    with Pool(_LOOKS, "tierfs-move") as pool:
        for some in batches(store.metadata.read, OBJECTS, _BATCH, archived):
            deque(pool.in_order(unrestored.holds, some), maxlen=0)
    unrestored.require_none("moved", "first run: tierfs thaw --wait /")


def _same_place(before: Place, place: Place) -> InvalidRequest:
    return InvalidRequest(
        f"{policies.told(place.record)} is the same place as {policies.told(before.record)}, under another address",
        remedy="choose another place; to change only the address: tierfs config cold.url=...",
    )


class _Moving:
    """The copy of one cold tier, and its proof."""

    def __init__(
        self, store: Store, before: LocationId, target: ChunkStorage, report: OnProgress, trace: Trace
    ) -> None:
        self._store = store
        self._origin = PacedStorage(store.storage_of(before), store.limits.pace)
        self._target = target
        self._location_id = before
        with store.metadata.read() as txn:
            cold_bytes = 0 if txn.sums is None else txn.sums.cold_bytes
        self._copy = TierCopy(self._origin, target, Meter(report, cold_bytes, noun="object"), trace)
        self._proved = Meter(report, cold_bytes, noun="proof")
        self.copied = self._copy.done

    @property
    def is_inside(self) -> bool:
        """Whether the new place was seen to lie inside the present one."""
        return self._copy.is_inside

    def copy(self) -> None:
        """Copy what is missing. Raises what the storages raise."""
        self._copy.run(compares=True)

    def prove(self) -> list[str]:
        """Read all that has checksums in the new place, and the tables; return the names of objects bad before.

        An object that is wrong there and right in the place before is copied once more; nothing else there is replaced.
        Raises DataLoss unless the new place then has every byte that the place before has.
        """
        bad, bad_tables = self._bad(self._pieces(), self._there, shown=True), self._bad_tables(self._there)
        names = {part.object_name for part in bad} | bad_tables
        whole = [piece for piece in self._pieces() if _part(piece).object_name in names] if names else []
        bad_before = self._bad(whole, self._store.storage_of)
        bad_tables_before = self._bad_tables(self._store.storage_of, names)
        kept = {part.object_name for part in bad_before} | bad_tables_before
        for name in sorted(names - kept):
            self._copy.again(name)
        copied = self._bad((piece for piece in whole if _part(piece).object_name not in kept), self._there)
        still = (part for part in bad if part.object_name in kept)
        worse = [part for part in still if any(ranges.subtract(bad[part], bad_before.get(part, ())))]
        worse_tables = self._bad_tables(self._there, names - kept) | (bad_tables & kept) - bad_tables_before
        if lost := [*(part.object_name for part in (*copied, *worse)), *sorted(worse_tables)]:
            raise DataLoss(
                f"{printable(lost[0])} differs between {self._target!r} and {self._origin!r}",
                remedy="check both places, repair the current one (tierfs check --read --repair), and run the "
                "command again",
            )
        return sorted(kept)

    def _bad_tables(
        self, storage_of: Callable[[LocationId], ChunkStorage], names: Collection[str] | None = None
    ) -> set[str]:
        """Return the objects, of all or of these, whose seek table or index is bad in a place."""
        scrubber = Scrubber(self._store.metadata, self._store.files, storage_of)
        damaged = ObjectTables(self._store.metadata, scrubber).damaged(names)
        return {record.name for record, _ in damaged if record.location_id == self._location_id}

    def _bad(
        self, wanted: Iterable[ScrubPiece], storage_of: Callable[[LocationId], ChunkStorage], *, shown: bool = False
    ) -> dict[_Part, list[ByteRange]]:
        """Return the bytes that are bad or missing in a place."""
        bad: dict[_Part, list[ByteRange]] = {}
        for checked in Scrubber(self._store.metadata, self._store.files, storage_of).run(wanted):
            part = _part(checked.piece)
            if checked.bad:
                bad.setdefault(part, []).extend(checked.bad)
            if shown:
                self._proved(checked.piece.range.length_bytes, f"verifying {part.object_name}")
        return bad

    def _there(self, location_id: LocationId) -> ChunkStorage:
        return self._target if location_id == self._location_id else self._store.storage_of(location_id)

    def _pieces(self) -> Iterator[ScrubPiece]:
        """Yield all that is cold in the place before, and not recorded as lost."""
        with self._store.metadata.read() as txn:
            ids = array("Q", (tables.read_u64(key) for key, _ in txn.scan_raw(SEGMENTS.name)))
        for number in ids:
            for piece in pieces(self._store.metadata, SegmentId(number), tiers=(Tier.COLD,)):
                placed = piece.placed
                if placed and not placed.chunk.lost and placed.object.location_id == self._location_id:
                    yield piece


class _Part(NamedTuple):
    """The bytes of one segment in one object."""

    segment_id: SegmentId
    object_name: str


def _part(piece: ScrubPiece) -> _Part:
    assert piece.placed is not None
    return _Part(piece.segment_id, piece.placed.object.name)
