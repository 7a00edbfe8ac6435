"""Dumps: all rows of all databases, byte by byte, in framed parts (docs/format.md).

A dump is a sequence of DumpPart messages, framed like the journal's objects. Databases are in the order of their names,
rows in the order of their keys, so two dumps of one state are equal but for their time. Rows pass as they are: what a
newer tierfs wrote passes unchanged.

A dump may hold any state of one store, a damaged one too, which a check mends after the load. But no name in it leads
out of the store: neither of a file, nor of an object to delete, nor of a segment. One that does, and the dump is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from tierfs.base.bytes import ranges
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.system.clock import Clock
from tierfs.base.words import names, object_names
from tierfs.base.words.errors import DataLoss, TierfsError
from tierfs.base.words.names import printable
from tierfs.base.words.types import ROOT_DIRECTORY, Tier
from tierfs.engine.chunkstore import local_files
from tierfs.engine.metadata import environment as lmdb_environment
from tierfs.engine.metadata import frames, tables, untrusted
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.records import RECORD_VERSION
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.sums import SUMS_KEY
from tierfs.engine.metadata.tables import DIRECTORIES, DIRENTS, GARBAGE, INTENTS, OBJECTS, SEGMENTS, STORE, Table
from tierfs.engine.metadata.transaction import ReadTransaction, write_transaction

# Rows per part end here, so that a part with one more row stays below what a framed object may have.
PART_BYTES = 4 * 1024 * 1024

_MAX_DATABASE_NAME_BYTES = 64


@dataclass(slots=True)
class DumpSummary:
    """The contents of a dump."""

    store_id: str = ""
    written_ms: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    """Per database, in the dump's order."""
    row_bytes: int = 0
    """Keys and values."""
    parts: int = 0
    crc32c: int = 0
    """Of the whole dump file."""

    def add(self, part: pb.DumpPart, framed: bytes) -> None:
        """Count one part."""
        self.store_id, self.written_ms = part.store_id, part.written_ms
        for row in part.rows:
            name = _printable_name(row.database)
            self.rows[name] = self.rows.get(name, 0) + 1
            self.row_bytes += len(row.key) + len(row.value)
        self.parts += 1
        self.crc32c = crc32c(framed, self.crc32c)


def parts(txn: ReadTransaction, now_ms: int, report: OnProgress = unseen) -> Iterator[pb.DumpPart]:
    """Yield the dump of what the transaction sees; the last part is marked."""
    meter = Meter(report, total_items=sum(map(txn.count, txn.database_names)), noun="row")

    def rows() -> Iterator[pb.DumpRow]:
        for name in sorted(txn.database_names):
            for key, value in meter.each(txn.scan_raw(name), name.decode("ascii", "replace")):
                if (name, key) != (STORE.name, SUMS_KEY):  # void elsewhere, where the rows are counted on arrival
                    yield pb.DumpRow(database=name, key=key, value=value)

    head, part = pb.DumpPart(version=RECORD_VERSION, store_id=txn.store.store_id, written_ms=now_ms), None
    for index, some in enumerate(ranges.groups(rows(), pb.DumpRow.ByteSize, PART_BYTES)):
        if part is not None:
            yield part
        part = pb.DumpPart(index=index, rows=some)
        part.MergeFrom(head)
    part = head if part is None else part
    part.last = True
    yield part


def write(txn: ReadTransaction, file: BinaryIO, now_ms: int, report: OnProgress = unseen) -> DumpSummary:
    """Write the dump of what the transaction sees."""
    summary = DumpSummary()
    for part in parts(txn, now_ms, report):
        framed = frames.frame(part)
        file.write(framed)
        summary.add(part, framed)
    return summary


def read(file: BinaryIO, name: str) -> Iterator[tuple[pb.DumpPart, bytes]]:
    """Yield the parts of a dump with their framed bytes, each checked; end after the last one.

    Raises DataLoss for a dump that is cut, damaged, out of order or followed by something.
    """
    expected = _Expected()
    while True:
        framed = frames.read_framed(file, name)
        if framed is None:
            raise DataLoss(f"{name} is truncated: its last part is missing")
        part = frames.parse_dump_part(framed, name)
        expected.check(part, name)
        for row in part.rows:
            _check_names(row, name)
        yield part, framed
        if part.last:
            break
    if file.read(1):
        raise DataLoss(f"{name}: bytes follow the last part")


def verify(file: BinaryIO, name: str, report: OnProgress = unseen) -> DumpSummary:
    """Read all of a dump; raises what `read` raises, and DataLoss when it holds no store."""
    summary, meter = DumpSummary(), Meter(report, noun="row")
    for part, framed in read(file, name):
        summary.add(part, framed)
        meter(len(framed), f"checking {name}", len(part.rows))
    if summary.rows.get("store") != 1:
        raise DataLoss(f"{name} contains no store")
    return summary


def load(
    path: Path,
    clock: Clock,
    parts: Iterable[pb.DumpPart],
    databases: Mapping[str, int],
    report: OnProgress = unseen,
) -> None:
    """Fill a new environment in directory `path`, which must not exist, with the rows of verified parts."""
    lmdb_environment.create_directory(path)
    path = path.resolve()
    environment = lmdb_environment.open_present(path, create=True)
    meter = Meter(report, total_items=sum(databases.values()), noun="row")
    try:
        environment.add_databases(name.encode() for name in databases)
        for part in parts:
            with write_transaction(environment, clock) as txn:
                for row in part.rows:
                    txn.put_raw(row.database, row.key, row.value)
            meter(0, "writing metadata", len(part.rows))
    finally:
        lmdb_environment.close_environment(path)


def end_active_chunks(metadata: MetadataStore) -> None:
    """End each segment's active chunk at the length that was loaded.

    Its file may have grown since the dump was made. A writer that continued it would overwrite those bytes, which
    may be all that is left of them. Left as it is where only a newer tierfs may write.
    """
    with metadata.write_notes() as txn:
        if txn.store.min_writer_version > RECORD_VERSION:
            return
        for key in [key for key, segment in txn.scan(SEGMENTS) if segment.active]:
            segment = txn.get(SEGMENTS, key)
            assert segment is not None, "this transaction found it"
            ended = replace(segment, active=False, resumable=False, generation=segment.generation + 1)
            txn.put(SEGMENTS, key, ended)


class _Expected:
    """The required order of the parts of a dump."""

    def __init__(self) -> None:
        self._index = 0
        self._store_id = ""
        self._newest = (b"", b"")

    def check(self, part: pb.DumpPart, name: str) -> None:
        """Raise DataLoss unless the part follows on the ones before."""
        if part.version > RECORD_VERSION:
            raise DataLoss(f"{name} has format version {part.version}", remedy="upgrade tierfs")
        if part.index != self._index or (self._index and part.store_id != self._store_id):
            raise DataLoss(f"{name}: part {self._index} is missing")
        for row in part.rows:
            at = (row.database, row.key)
            if at <= self._newest or not row.key:
                raise DataLoss(f"{name}: the rows of part {part.index} are out of order")
            _printable_name(row.database)
            self._newest = at
        self._index, self._store_id = part.index + 1, part.store_id


def _check_names(row: pb.DumpRow, dump: str) -> None:
    """Raise DataLoss for a row that names what tierfs would not make. A row that nobody can read names nothing."""
    check = _ROW_NAMES.get(row.database)
    message = None if check is None else check.table.codec.parse_or_none(row.value)
    if check is None or message is None:
        return
    try:
        check.of(message, row.key)
    except (TierfsError, UnicodeError) as exc:
        text = str(exc).removeprefix(untrusted.DAMAGED)
        kind = row.database.decode("ascii")
        raise DataLoss(
            f"{dump} is refused, with nothing written: a row of {kind}: {printable(text)}",
            remedy="if this is your own dump, rebuild the store from its bucket instead: tierfs recover",
        ) from exc


def _object(message: Any, _: bytes) -> None:
    if message.tier == Tier.LOCAL:
        local_files.require_ours(message.name)
        return
    untrusted.check_object_name(message.name, owned=not message.foreign)
    for name, owned in ((message.index_name, not message.foreign), (message.entries_name, True)):
        if name:
            untrusted.check_object_name(name, owned=owned)


def _garbage(message: Any, _: bytes) -> None:
    (local_files if message.tier == Tier.LOCAL else object_names).require_ours(message.name)


def _intent(message: Any, _: bytes) -> None:
    if not object_names.is_job(message.name):
        object_names.require_ours(message.name)


def _directory(message: Any, _: bytes) -> None:
    if message.id != ROOT_DIRECTORY:
        names.check_component(message.name)


@dataclass(frozen=True, slots=True)
class _RowNames:
    """Where a table's rows hold names, and what these may be."""

    table: Table[Any]
    of: Callable[[Any, bytes], None]
    """Raises for a message, and its key, with another name."""


_ROW_NAMES = {
    names_of.table.name: names_of
    for names_of in (
        _RowNames(OBJECTS, _object),
        _RowNames(GARBAGE, _garbage),
        _RowNames(INTENTS, _intent),
        _RowNames(SEGMENTS, lambda message, _: names.check_component(message.name)),
        _RowNames(DIRECTORIES, _directory),
        _RowNames(DIRENTS, lambda _, key: names.check_component(tables.dirent_name(key))),
    )
}


def _printable_name(database: bytes) -> str:
    """Return a database's name, which is a word; anything else in a dump is damage."""
    if not (0 < len(database) <= _MAX_DATABASE_NAME_BYTES and database.isalnum() and database.isascii()):
        raise DataLoss(f"a dump contains an impossible database, {database[:_MAX_DATABASE_NAME_BYTES]!r}")
    return database.decode("ascii")
