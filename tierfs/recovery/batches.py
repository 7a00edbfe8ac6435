"""Distributed writes among the objects of a bucket: identify objects below `uploads/` by their manifests.

A manifest is written before its commit, and a version may be written by several jobs, of which one was committed. So
one manifest per version is chosen: the last one of a job, and of several jobs one whose objects are all present, the
first of those. Objects that no chosen manifest names are not linked.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from tierfs.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.errors import DataLoss, NotFound
from tierfs.journal.cold_identity import read_small
from tierfs.metadata import changes, untrusted
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.ledger_and_batch_records import BatchRecord
from tierfs.recovery.rebuild_segment import FoundObject, LeftOver, checked_path
from tierfs.tiering.batch_job import attempt_of, is_manifest

_NOT_COMMITTED = "no commit that is known names it"


@dataclass(frozen=True, slots=True)
class FoundBatch:
    """A version of an application with the job that wrote it."""

    store_id: str
    application: str
    batch: str
    job: str


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A manifest that may be chosen, and the place of its job's objects in the file."""

    batch: FoundBatch
    written_ms: int
    is_complete: bool
    offset: int
    lines: int

    @property
    def rank(self) -> tuple[bool, int, str]:
        """Sort key; the greatest is chosen."""
        return self.is_complete, -self.written_ms, self.batch.job


def batch_objects(
    storage: ChunkStorage, listed: Iterable[StoredObject], beside: Path, found: list[FoundBatch]
) -> Iterator[FoundObject | LeftOver]:
    """Identify the objects of a listing of `uploads/`; append the batches they belong to to `found`.

    Memory grows with the batches: their objects are kept in a file next to `beside`.
    """
    path = beside.with_name(f"{beside.name}.batches")
    chosen: dict[tuple[str, str, str], _Candidate] = {}
    lost: list[_Candidate] = []
    try:
        with path.open("wb") as file:
            for _, of_job in groupby(listed, key=lambda one: one.name.rpartition("/")[0]):
                objects = {one.name: one for one in of_job}
                candidate, rows, omitted = _look(storage, objects, file.tell())
                yield from omitted
                if candidate is None:
                    continue
                for row in rows:
                    file.write(json.dumps(asdict(row)).encode() + b"\n")
                batch = candidate.batch
                other = chosen.get(key := (batch.store_id, batch.application, batch.batch))
                if other is None or candidate.rank > other.rank:
                    chosen[key] = candidate
                lost += [each for each in (candidate, other) if each is not None and each is not chosen[key]]
        for candidate in sorted(chosen.values(), key=lambda each: each.offset):
            found.append(candidate.batch)
            yield from _read(path, candidate)
        for candidate in lost:
            why = f"version {candidate.batch.batch} was written by another job too"
            yield from (LeftOver(row.name, why) for row in _read(path, candidate))
    finally:
        path.unlink(missing_ok=True)


def _look(
    storage: ChunkStorage, objects: Mapping[str, StoredObject], offset: int
) -> tuple[_Candidate | None, list[FoundObject], list[LeftOver]]:
    """Return the chosen manifest of a job, the existing objects that it names, and the other objects."""
    data = {name: one for name, one in objects.items() if not is_manifest(name)}
    parts, damaged = _newest(storage, [name for name in objects if is_manifest(name)])
    if not parts:
        return None, [], [*(LeftOver(name, _NOT_COMMITTED) for name in data), *damaged]
    head = parts[0]
    rows: list[FoundObject] = []
    listed: list[str] = []
    try:
        for part in parts:
            for segment in part.segments:
                listed += (uploaded.name for uploaded in segment.objects)
                rows += _described(head, segment, data)
        if len(set(listed)) < len(listed):
            raise DataLoss("its manifest gives the bytes of an object to several segments")
        batch = FoundBatch(head.store_id, head.application, head.batch, head.job)
        BatchRecord(application=batch.application, batch=batch.batch).check()
    except DataLoss as exc:
        return None, [], [*(LeftOver(name, str(exc)) for name in data), *damaged]
    named = {row.name for row in rows}
    unnamed = [LeftOver(name, _NOT_COMMITTED) for name in data if name not in named]
    return _Candidate(batch, head.written_ms, len(rows) == len(listed), offset, len(rows)), rows, [*unnamed, *damaged]


def _newest(storage: ChunkStorage, manifests: list[str]) -> tuple[list[pb.BatchManifest], list[LeftOver]]:
    """Return the parts of a job's last manifest with all parts present and sound, and the damaged parts of all."""
    damaged: list[LeftOver] = []
    attempts: dict[str, list[pb.BatchManifest]] = defaultdict(list)
    for name in manifests:
        try:
            part = changes.parse_batch_manifest(read_small(storage, name), name)
            attempts[attempt_of(name)].append(part)
        except (DataLoss, NotFound) as exc:
            damaged.append(LeftOver(name, str(exc)))
    whole = [
        sorted(parts, key=lambda part: part.part)
        for parts in attempts.values()
        if len(parts) == parts[0].parts and {part.part for part in parts} == set(range(len(parts)))
    ]
    return max(whole, key=lambda parts: parts[0].written_ms, default=[]), damaged


def _described(
    head: pb.BatchManifest, segment: pb.UploadedSegment, present: Mapping[str, StoredObject]
) -> Iterator[FoundObject]:
    """Yield the present objects of a segment. Raises DataLoss for impossible ranges and names."""
    at = 0
    for uploaded in segment.objects:
        start, at = at, at + uploaded.length
        stored = present.get(uploaded.name)
        if at > untrusted.MAX_OFFSET or not uploaded.length:
            raise DataLoss("its manifest names an impossible range")
        if stored is None or stored.length_bytes != uploaded.length:
            continue
        found = FoundObject(
            name=uploaded.name,
            etag=stored.etag,
            modified_ms=stored.modified_ms,
            store_id=head.store_id,
            segment_id=segment.segment_id,
            path=segment.name,
            start=start,
            end=at,
            epoch=head.store_epoch,
            attempt=head.job,
            crc32c=uploaded.crc32c,
        )
        checked_path(found)
        yield found


def _read(path: Path, candidate: _Candidate) -> Iterator[FoundObject]:
    with path.open("rb") as file:
        file.seek(candidate.offset)
        for _ in range(candidate.lines):
            yield FoundObject(**json.loads(file.readline()))
