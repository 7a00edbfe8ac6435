"""Dump and load a whole store or one segment. Part of the composition root."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

from tierfs.app.setup import place_change, store_directory
from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.system import osio
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.system.os_errors import map_os_errors
from tierfs.base.system.store_paths import StorePaths, require_trusted
from tierfs.base.words.errors import AlreadyExists, InvalidRequest, NotFound
from tierfs.base.words.types import LocationId, Tier
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.journal import cold_identity
from tierfs.engine.metadata import store_ownership
from tierfs.engine.metadata.store import MetadataStore, new_id
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.tiering.backup import segment
from tierfs.tiering.backup import store as dump
from tierfs.tiering.backup.segment import SegmentDumped
from tierfs.tiering.backup.store import DumpSummary
from tierfs.tiering.garbage import ballast
from tierfs.tiering.garbage.orphans import OrphanFinder
from tierfs.tiering.garbage.strays import MetadataMark

STDOUT = "-"

# Directory in which metadata are made before they get their name; that of a killed load is thrown away.
_STAGING = "metadata.loading"


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The result of loading a store's dump, compared with the chunk files that were there."""

    summary: DumpSummary
    missing_files: int
    """Chunk files that the dump names and that are not there, or shorter than it says."""
    newer_files: int
    """Chunk files with bytes that are later than the dump."""


def dump_store(store: Store, target: str, report: OnProgress = unseen) -> DumpSummary:
    """Write all metadata to a file, which appears whole or not at all, or to standard output for `-`.

    One read transaction: the store's holder continues meanwhile.
    """
    now_ms = store.clock.now_ms()
    with store.metadata.read() as txn:
        if target == STDOUT:
            summary = dump.write(txn, sys.stdout.buffer, now_ms, report)
            sys.stdout.buffer.flush()
            return summary
        with _appearing(Path(target)) as file:
            return dump.write(txn, file, now_ms, report)


def load_store(directory: Path, source: Path, clock: Clock | None = None, report: OnProgress = unseen) -> LoadReport:
    """Make the metadata of a store from a dump, in a directory that has none; chunk files may be there.

    Raises AlreadyExists, and DataLoss for a dump that is cut or damaged, with nothing written.
    """
    paths = StorePaths(directory.absolute())
    if paths.metadata.exists():
        raise AlreadyExists(
            f"{paths.root} has metadata already", remedy=f"move them aside: mv {paths.metadata} {paths.metadata}.old"
        )
    require_trusted(paths.root)
    clock = clock or SystemClock()
    with map_os_errors(str(source)), source.open("rb") as file:
        summary = dump.verify(file, str(source), report)
        file.seek(0)
        with map_os_errors(str(paths.root)):
            osio.make_directories(paths.root, osio.OWNER_DIRECTORY)
        MetadataMark(paths.metadata).remove()  # first: newer chunk files are all that is left of their bytes
        _make_metadata(paths, file, summary, str(source), clock, report)
    return _compare_files(paths, summary, clock, report)


def dump_segment(store: Store, name: str, report: OnProgress = unseen) -> SegmentDumped:
    """Write a segment's metadata to its bucket; see backup.segment. Raises Fenced and WrongColdTier too.

    Raises Conflict while the cold tier gets another place: no record names a dump, so a move would not miss it.
    """
    with place_change.changing(store.paths, store.clock):
        with store.metadata.read() as txn:
            record = txn.store
        store_ownership.require_owner(record)
        storage = store.cold_work("a dump to the bucket").cold.storage
        cold_identity.examine(storage, record)
        return segment.dump_segment(store.metadata, storage, name, report)


def _make_metadata(
    paths: StorePaths, file: BinaryIO, summary: DumpSummary, name: str, clock: Clock, report: OnProgress
) -> None:
    staging = paths.root / _STAGING
    if staging.exists():
        shutil.rmtree(staging)
    try:
        dump.load(staging, clock, (part for part, _ in dump.read(file, name)), summary.rows, report)
        with closing(MetadataStore(staging, clock)) as metadata:  # raises for a version that this tierfs cannot read
            dump.end_active_chunks(metadata)
        _make_the_rest(paths)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    os.rename(staging, paths.metadata)  # last: a load that was killed before it is repeated as it was
    osio.sync_directory(paths.root)


def _make_the_rest(paths: StorePaths) -> None:
    """Make what the store lacks besides metadata."""
    if not paths.chunks.exists():
        ChunkFiles.create(paths.chunks).close()
    for directory in (paths.locks, paths.log):
        directory.mkdir(mode=osio.OWNER_DIRECTORY, exist_ok=True)
    if not paths.ballast.exists():
        ballast.create(paths.ballast)
    if not paths.settings.exists():
        store_directory.write_settings(paths)


def _compare_files(paths: StorePaths, summary: DumpSummary, clock: Clock, report: OnProgress) -> LoadReport:
    with closing(MetadataStore(paths.metadata, clock)) as metadata, closing(ChunkFiles(paths.chunks)) as files:
        missing = newer = 0
        with metadata.read() as txn:
            recorded = Meter(report, total_items=txn.count(OBJECTS.name), noun="object")
            for _, record in recorded.each(txn.scan(OBJECTS), "comparing chunk files"):
                if record.tier is Tier.LOCAL:
                    difference = _length(files, record.name) - record.length
                    missing, newer = missing + (difference < 0), newer + (difference > 0)
        newer += len(OrphanFinder(metadata, files, None, LocationId(0)).find(grace_ms=0, report=report))
        return LoadReport(summary, missing, newer)


def _length(files: ChunkFiles, name: str) -> int:
    try:
        return files.stat(name)[0]
    except NotFound:
        return -1


@contextmanager
def _appearing(wanted: Path) -> Iterator[BinaryIO]:
    """Open a file that gets its name when the block ends, durably; nothing is left when it fails.

    A link stays one. Raises InvalidRequest for a name that a device, a pipe, a directory or a circle of links has.
    """
    target = Path(os.path.realpath(wanted))
    if target.is_symlink() or (target.exists() and not target.is_file()):
        raise InvalidRequest(
            f"{wanted} is not a regular file, and a backup would replace it", remedy="to write into it: tierfs backup -"
        )
    temporary = target.with_name(f".{target.name}.{new_id()}")
    with map_os_errors(str(target)):
        try:
            with osio.durable_file(temporary, os.O_EXCL) as file:
                yield file
            os.replace(temporary, target)
            osio.sync_directory(target.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
