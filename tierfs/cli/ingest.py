"""tierfs ingest: files become segments. Run it again to go on where it stopped."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import click

from tierfs import names
from tierfs.app import Progress, Store
from tierfs.background import holder
from tierfs.checksum import crc32c
from tierfs.cli.context import Context, pass_context
from tierfs.cli.format import count, size
from tierfs.cli.output import emit, progress, warn
from tierfs.cli.writing import BLOCK_BYTES
from tierfs.errors import Conflict, InvalidRequest, NotFound, PermissionDenied, StorageFull, TierfsError
from tierfs.metadata import directories
from tierfs.metadata.records import SegmentRecord
from tierfs.segments import stat as segment_stat

T = TypeVar("T")
Report = Callable[[Progress], None]

_WAIT_S = 1.0
"""Between two looks whether offload and evict have made room."""

_SHOWN_ERRORS = 10


@dataclass(frozen=True, slots=True)
class _Item:
    path: Path
    name: str
    length_bytes: int


@dataclass(slots=True)
class _Outcome:
    """What became of all files; shared by the workers."""

    ingested: int = 0
    bytes: int = 0
    skipped: int = 0
    errors: list[tuple[str, TierfsError]] = field(default_factory=list)
    special: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@click.command("ingest")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--into", required=True, metavar="DIR", help="Directory in the store.")
@click.option("--seal", is_flag=True, help="End each segment.")
@click.option("--jobs", default=2, type=click.IntRange(1, 64), show_default=True, help="Files at once.")
@pass_context
def ingest_command(context: Context, paths: tuple[Path, ...], into: str, seal: bool, jobs: int) -> None:
    """A file becomes the segment DIR/<file name>, a directory DIR/<relative path> of each file in it.

    What is in the store already is skipped, or continued if it is the beginning of the file.
    """
    outcome = _Outcome()
    items = list(_items(paths, into, outcome))
    with context.open() as store, progress(context, "ingest") as report:
        work = _Work(context, store, seal, outcome, sum(item.length_bytes for item in items), report)
        with ThreadPoolExecutor(jobs, "tierfs-ingest") as pool:
            for future in [pool.submit(work.ingest, item) for item in items]:
                future.result()
    _report(context, items, outcome)


class _Work:
    """Ingests one file at a time, from any thread."""

    def __init__(
        self, context: Context, store: Store, seal: bool, outcome: _Outcome, total: int, report: Report
    ) -> None:
        self._context = context
        self._store = store
        self._seal = seal
        self._outcome = outcome
        self._total = total
        self._report = report
        self._done = 0

    def ingest(self, item: _Item) -> None:
        """Make or continue the file's segment; errors are noted, others go on."""
        try:
            written = self._ingest(item)
        except TierfsError as exc:
            with self._outcome.lock:
                self._outcome.errors.append((str(item.path), exc))
            return
        except OSError as exc:
            kind = PermissionDenied if isinstance(exc, PermissionError) else NotFound
            with self._outcome.lock:
                self._outcome.errors.append((str(item.path), kind(os.strerror(exc.errno or 0))))
            return
        with self._outcome.lock:
            if written is None:
                self._outcome.skipped += 1
            else:
                self._outcome.ingested += 1
                self._outcome.bytes += written

    def _ingest(self, item: _Item) -> int | None:
        """Bytes written, or None when the segment is complete already."""
        with item.path.open("rb") as file:
            start = self._common_length(item, file.fileno())
            if start is None:
                return None
            return self._append(item, file.fileno(), start)

    def _append(self, item: _Item, fd: int, start: int) -> int:
        writer = self._retry_full(lambda: self._store.engine.open_writer(item.name, expected_offset=start))
        offset = start
        try:
            held = os.pread(fd, BLOCK_BYTES, offset)
            while True:
                following = os.pread(fd, BLOCK_BYTES, offset + len(held)) if held else b""
                last = not following
                block = held
                self._retry_full(lambda: writer.append(block, last=last, seal=last and self._seal))  # noqa: B023
                offset += len(held)
                self._advance(item, len(held))
                if last:
                    return offset - start
                held = following
        finally:
            self._store.engine.close_writer(writer)

    def _common_length(self, item: _Item, fd: int) -> int | None:
        """How much of the file is in the store; None when all of it is. Raises Conflict when they differ."""
        with self._store.metadata.read() as txn:
            entry = directories.find(txn, item.name)
            if entry is None:
                return 0
            segment = directories.segment_by_name(txn, item.name)
            crc = segment_stat.segment_crc(txn, segment)
        if segment.length > item.length_bytes or crc is None or crc != _crc_of(fd, segment.length):
            raise Conflict(f"segment {names.printable(item.name)} holds something else", remedy="choose another --into")
        if segment.length < item.length_bytes:
            return segment.length
        self._seal_complete(item, segment)
        self._advance(item, item.length_bytes)
        return None

    def _seal_complete(self, item: _Item, segment: SegmentRecord) -> None:
        if self._seal and not segment.sealed:
            self._store.engine.seal(item.name)

    def _retry_full(self, work: Callable[[], T]) -> T:
        """Run `work`; while the disk is full and somebody makes room, wait and say why."""
        told = False
        while True:
            try:
                return work()
            except StorageFull as exc:
                who = holder.current(self._store.paths.holder)
                if who is None:
                    raise
                if not told:
                    warn(self._context, f"{exc}; waiting for {who} to make room")
                told = True
                time.sleep(_WAIT_S)

    def _advance(self, item: _Item, done: int) -> None:
        with self._outcome.lock:
            self._done += done
            self._report(Progress(self._done, self._total, item.name))


def _items(paths: tuple[Path, ...], into: str, outcome: _Outcome) -> Iterator[_Item]:
    """The files to ingest. Raises NotFound for a path that does not exist; bad names become errors."""
    names.split(into)
    for path in paths:
        if not path.exists():
            raise NotFound(f"{path} does not exist")
        if path.is_dir():
            for found in _files_below(path, outcome):
                yield from _item(found, f"{into}/{found.relative_to(path)}", outcome)
        else:
            yield from _item(path, f"{into}/{path.name}", outcome)


def _files_below(directory: Path, outcome: _Outcome) -> Iterator[Path]:
    """Regular files in name order; links are not followed, sockets and the like are counted."""
    for root, inner, files in os.walk(directory):
        inner.sort()
        for name in sorted(files):
            path = Path(root) / name
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                yield path
            else:
                outcome.special += 1


def _item(path: Path, name: str, outcome: _Outcome) -> Iterator[_Item]:
    try:
        parts = names.split(name)
    except InvalidRequest as exc:
        outcome.errors.append((str(path), exc))
        return
    yield _Item(path, names.join(parts), path.stat().st_size)


def _crc_of(fd: int, length: int) -> int:
    """CRC32C of the first bytes of a file; of what there is, if it is shorter."""
    crc, offset = 0, 0
    while offset < length:
        block = os.pread(fd, min(BLOCK_BYTES, length - offset), offset)
        if not block:
            break
        crc, offset = crc32c(block, crc), offset + len(block)
    return crc


def _report(context: Context, items: list[_Item], outcome: _Outcome) -> None:
    if context.as_json:
        emit(
            {
                "segments": outcome.ingested,
                "bytes": outcome.bytes,
                "skipped": outcome.skipped,
                "special_files": outcome.special,
                "errors": [{"path": path, "error": str(exc)} for path, exc in outcome.errors],
            }
        )
    else:
        skipped = f"; {outcome.skipped:,} were there already" if outcome.skipped else ""
        print(f"ingested {count(outcome.ingested, 'segment')} ({size(outcome.bytes)}){skipped}")
        _warn_of(context, items, outcome)
    if outcome.errors:
        first = outcome.errors[0][1]
        message = (
            f"{len(outcome.errors)} of {len(items)} files were not ingested, the first: {outcome.errors[0][0]}: {first}"
        )
        raise type(first)(message, remedy=first.remedy) if type(first).__init__ is TierfsError.__init__ else first


def _warn_of(context: Context, items: list[_Item], outcome: _Outcome) -> None:
    if outcome.special:
        warn(context, f"{count(outcome.special, 'link or special file')} left out")
    for path, exc in outcome.errors[:_SHOWN_ERRORS]:
        warn(context, f"{names.printable(path)}: {exc}")
    hidden = [warning for item in items if (warning := names.hadoop_warning(item.name))]
    if hidden:
        warn(context, f"{count(len(hidden), 'name')} cannot be read by Hadoop and Spark, the first: {hidden[0]}")
