"""Checks what lies between and behind the bytes of objects: the seek tables of compressed ones, the indexes of packs.

No reader needs them: rows of the metadata place all bytes. A recovery that has the bucket alone does, so damage must be
found while these rows are there. Costs one small request for most objects, two for a plain pack. No byte is lost with a
table, and no chunk is accused for it.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator
from itertools import accumulate
from typing import Any

from tierfs.base.bytes.checksum import twice
from tierfs.base.bytes.parallel import Pool
from tierfs.base.words.errors import Archived, DataLoss, NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.types import PayloadEncoding, Tier
from tierfs.engine.frames.frame_map import FrameMap
from tierfs.engine.frames.seek_table import Section
from tierfs.engine.metadata import frame_rows, tables
from tierfs.engine.metadata.message_rows import messages
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.reading import compressed_objects
from tierfs.tiering.packs.format import parse_name, read_pack
from tierfs.upkeep.check.findings import Finding, Kind, Mend, Severity
from tierfs.upkeep.check.repair.checksums import locate
from tierfs.upkeep.check.scrub.scrub import Scrubber

_IN_PARALLEL = 8


class ObjectTables:
    """Compares the tables of objects with the metadata. Thread-safe."""

    def __init__(self, metadata: MetadataStore, scrubber: Scrubber, doubtful: Collection[int] = ()) -> None:
        """`scrubber` has the storages, and knows the current etags.

        `doubtful`: objects with bad bytes, whose rows may be what is wrong: their tables are not compared with these.
        """
        self._doubtful = doubtful
        self._metadata = metadata
        self._scrubber = scrubber

    def findings(self) -> Iterator[Finding]:
        """Yield the objects with a damaged table that hold bytes which are not lost. Raises as `damaged`."""
        bad = {record.id: (record, why) for record, why in self.damaged()}
        if not bad:
            return
        with self._metadata.read() as txn:
            held = {each.object.id for each in locate(txn, Tier.COLD, bad) if not each.chunk.lost}
        for object_id in sorted(held):
            record, why = bad[object_id]
            yield Finding(
                Kind.TABLES,
                Severity.DAMAGE,
                f"object {printable(record.name)}",
                f"{why}; no byte is lost by this, but a recovery from the bucket alone needs it",
                mend=Mend.RENEW_OBJECT,
                remedy="write its bytes to a new object: tierfs check --read --repair",
                object_id=object_id,
            )

    def damaged(self, names: Collection[str] | None = None) -> Iterator[tuple[ObjectRecord, str]]:
        """Yield the objects with a damaged table, each with the reason; `names`: of these alone.

        Raises Unavailable when a place does not answer.
        """
        if names is not None and not names:
            return
        with self._metadata.read() as txn:
            ids = array("Q", (tables.read_u64(key) for key, row in messages(txn, OBJECTS) if row and may_have(row)))
        yield from self._damaged(ids, names)

    def damaged_of(self, ids: Collection[int]) -> Iterator[tuple[ObjectRecord, str]]:
        """Yield those of these objects that have a damaged table, each with the reason. Raises as `damaged`."""
        yield from self._damaged(ids, None)

    def _damaged(self, ids: Collection[int], names: Collection[str] | None) -> Iterator[tuple[ObjectRecord, str]]:
        if not ids:
            return
        with Pool(_IN_PARALLEL, "tierfs-tables") as pool:
            for record, why in pool.in_order(lambda number: self._look(number, names), ids):
                if record is not None and why is not None:
                    yield record, why

    def defect(self, record: ObjectRecord) -> str | None:
        """Return what is wrong with the table of an object.

        None if it is right, or if other checks find what is wrong: the object is gone or has another length, or its
        rows do not place all frames. Raises Unavailable when its place does not answer.
        """
        place = self._scrubber.reader.place(record)
        place.was_left()  # looks: both reads would be of a place that was left before them
        while (why := self._defect(record)) is not None and place.was_left():
            pass
        return why

    def _defect(self, record: ObjectRecord) -> str | None:
        try:
            return twice(lambda: self._compare(record))
        except (NotFound, Archived):  # of the second, the check of its bytes says that it is not read
            return None
        except DataLoss as exc:
            return str(exc) if self._has_its_length(record) else None

    def _look(self, number: int, names: Collection[str] | None) -> tuple[ObjectRecord | None, str | None]:
        with self._metadata.read() as txn:
            record = txn.get(OBJECTS, tables.u64(number))
        if record is None or not (names is None or record.name in names):
            return None, None
        return record, self.defect(record)

    def _compare(self, record: ObjectRecord) -> None:
        """Read the table of an object. Raises DataLoss unless it is right."""
        storage = self._scrubber.storage_of(record.location_id)
        if parse_name(record.name) is not None:
            section = read_pack(storage, record.name, record.stored_bytes).section
            if section is None:
                return
            written = _frames_of(section)
        else:
            written = self._read_frames(record)
        with self._metadata.read() as txn:
            if record.id in self._doubtful or txn.get(OBJECTS, tables.u64(record.id)) is None:
                return
            try:
                recorded = frame_rows.all_frames(txn, record)
            except DataLoss:
                return  # as the check of the rows says
        if (written.starts, written.stored) != (recorded.starts, recorded.stored):
            raise DataLoss("its seek table places frames where the metadata has others")

    def _read_frames(self, record: ObjectRecord) -> FrameMap:
        storage = self._scrubber.storage_of(record.location_id)
        frames: FrameMap | None = None
        for attempt in self._scrubber.reader.etags.attempts(record):

            def read(start: int, end: int, etag: str | None = attempt.etag) -> memoryview:
                view = memoryview(bytearray(end - start))
                storage.read_into(record.name, start, view, if_match=etag)
                return view

            with attempt:
                _, frames = compressed_objects.read_tables(read, record.stored_bytes, record.length)
        assert frames is not None  # the last attempt is for any version
        return frames

    def _has_its_length(self, record: ObjectRecord) -> bool:
        """Return whether an object still is one of the store, with its length; else its table proves nothing."""
        with self._metadata.read() as txn:
            if txn.get(OBJECTS, tables.u64(record.id)) is None:
                return False
        try:
            stored = self._scrubber.storage_of(record.location_id).stat(record.name)
        except NotFound:
            return False
        return stored.length_bytes == record.stored_bytes


def may_have(row: Any) -> bool:
    """Return whether the record or the message of an object is of one that this store made compressed, or of a pack."""
    if row.tier != Tier.COLD or row.foreign:
        return False
    return row.encoding == PayloadEncoding.ZSTD_FRAMES or parse_name(row.name) is not None


def _frames_of(section: Section) -> FrameMap:
    """Return the frames of a pack's payloads: all but the last, which has the index."""
    stored, plain = section.sizes[:-2:2], section.sizes[1:-2:2]
    return FrameMap(array("Q", accumulate(plain, initial=0)), array("Q", accumulate(stored, initial=0)))
