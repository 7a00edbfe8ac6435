"""Checks local chunk files: every local object has its file, long enough, and read-only once its chunk has ended."""

from __future__ import annotations

import stat
from collections.abc import Iterator

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.words.errors import NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.types import ObjectId, Tier
from tierfs.base.words.units import count
from tierfs.engine.chunkstore import local_files
from tierfs.engine.chunkstore.local_files import ChunkFiles, FoundFile
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.message_rows import messages
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import GARBAGE, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.upkeep.check.findings import UNREACHABLE, Finding, Kind, Mend, Severity
from tierfs.upkeep.check.object_table import NamesIndex, ObjectTable
from tierfs.upkeep.check.repair.checksums import Located, locate

_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


@dataclass(slots=True)
class FileTotals:
    """Counts of the scan."""

    files: int = 0
    bytes: int = 0
    unnamed: int = 0
    """Files that no record names."""
    unnamed_bytes: int = 0


class FileCheck:
    """One scan of the chunk directory against the objects of one snapshot.

    Appends and evictions continue meanwhile, so each suspicious file is checked again in a newer snapshot.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        files: ChunkFiles,
        table: ObjectTable,
        active: set[int],
        report: OnProgress = unseen,
    ) -> None:
        self._metadata = metadata
        self._report = report
        self._files = files
        self._table = table
        self._active = active
        self._seen = bytearray(len(table.ids))
        self.totals = FileTotals()

    def run(self, txn: ReadTransaction) -> Iterator[Finding]:
        """Yield everything that is wrong with the files; `txn` is the snapshot of the table."""
        if not self._files.is_mounted:
            text = f"{self._files.root} is not accessible: not a chunk directory"
            yield Finding(Kind.UNREACHABLE, Severity.DAMAGE, "chunk files", text, remedy=UNREACHABLE)
            return
        waiting = NamesIndex()
        for _, record in messages(txn, GARBAGE):
            if record is not None and not record.tier:
                waiting.add(record.name, 0)
        short: dict[int, int] = {}
        writable: list[int] = []
        names = self._table.names[Tier.LOCAL]
        meter = Meter(self._report, total_items=len(names), noun="local file")
        for file in meter.each(self._files.scan(), lambda file: file.name):
            self._take(file, waiting, short, writable)
        missing = [number for number in names.numbers() if not self._seen[number]]
        for number in writable:
            yield from self._mode(number)
        yield from self._bad({self._table.ids[number]: None for number in missing})
        yield from self._bad({self._table.ids[number]: length for number, length in short.items()})
        if self.totals.unnamed:
            text = f"{count(self.totals.unnamed, 'unreferenced file')} of {self.totals.unnamed_bytes} bytes"
            yield Finding(Kind.FILE_ORPHANS, Severity.NOTE, "chunk files", text, remedy="list them with: tierfs gc")

    def _take(self, file: FoundFile, waiting: NamesIndex, short: dict[int, int], writable: list[int]) -> None:
        self.totals.files += 1
        self.totals.bytes += file.length_bytes
        named = False
        for number in self._table.names[Tier.LOCAL].find(file.name):
            named = True
            self._seen[number] = 1
            if file.length_bytes < self._table.lengths[number]:
                short[number] = file.length_bytes
            if file.mode & _WRITABLE and number not in self._active:
                writable.append(number)
        if not named and file.name not in waiting:
            self.totals.unnamed += 1
            self.totals.unnamed_bytes += file.length_bytes

    def _mode(self, number: int) -> Iterator[Finding]:
        """Check again a file whose chunk has ended: the process that ended it may be about to change the mode."""
        object_id = ObjectId(self._table.ids[number])
        with self._metadata.read() as txn:
            record = txn.get(OBJECTS, tables.u64(object_id))
        if record is not None and self._file(record.name).mode & _WRITABLE:
            text = "file of a completed chunk is still writable"
            yield Finding(
                Kind.FILE_MODE,
                Severity.NOTE,
                f"chunk file {record.name}",
                text,
                mend=Mend.SET_MODE,
                object_id=object_id,
            )

    def _bad(self, lengths: dict[int, int | None]) -> Iterator[Finding]:
        """Yield files that are missing (None) or too short, with the segments' bytes concerned."""
        if not lengths:
            return
        with self._metadata.read() as txn:
            for damaged in locate(txn, Tier.LOCAL, lengths.keys()):
                yield from self._finding(damaged, has_other_copy=damaged.has_other_copy(txn))

    def _finding(self, damaged: Located, *, has_other_copy: bool) -> Iterator[Finding]:
        """Yield nothing for an extent that is already lost or for bytes that a short file still has."""
        if damaged.chunk.lost:
            return
        name = f"chunk file {printable(damaged.object.name)}"
        file = self._file(damaged.object.name)
        if file.length_bytes is None:
            kind, text, missing = Kind.FILE_MISSING, f"{name} is missing", damaged.range
        elif file.length_bytes < damaged.object.length:
            kind = Kind.FILE_SHORT
            text = f"{name} has {file.length_bytes} bytes, its record says {damaged.object.length}"
            missing = damaged.behind(file.length_bytes)
        else:
            return
        if not missing:
            return
        yield Finding(
            kind,
            Severity.DAMAGE if has_other_copy else Severity.LOSS,
            damaged.segment,
            text if has_other_copy else f"{text}; no good cold copy",
            range=missing,
            mend=Mend.REPLACE_CHUNK,
            place=damaged.place,
            object_id=damaged.object.id,
        )

    def _file(self, name: str) -> _Now:
        if local_files.NAME.fullmatch(name) is None:
            return _Now(None, 0)  # a name that tierfs does not make: no such file is looked at
        try:
            return _Now(*self._files.length_and_mode(name))
        except NotFound:
            return _Now(None, 0)


@dataclass(frozen=True, slots=True)
class _Now:
    """The current state of a file; no length if it does not exist."""

    length_bytes: int | None
    mode: int
