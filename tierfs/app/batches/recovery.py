"""Distributed writes among the objects of a bucket: identify objects below `uploads/` by the manifests of their jobs.

A manifest is written before its commit and proves nothing; a job counts if its marker is there, which is written when
the journal names the commit. Of two marked jobs of one version, as an owner that was superseded may leave one, that of
the newer owner counts. Objects of jobs without a marker, and those that no manifest names, are not linked.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

from tierfs.app.found_objects import FoundObject, LeftOver, checked_path, compressed_bytes, storage_class
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.base.words.object_names import attempt_of, is_about_job, is_manifest
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.journal import batch_markers
from tierfs.engine.journal.batch_markers import Marker
from tierfs.engine.journal.objects import read_parsed
from tierfs.engine.metadata import frames, untrusted
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.batch_records import BatchRecord
from tierfs.engine.metadata.batches import Versions

_NOT_COMMITTED = "no known commit refers to it"
_NOT_MARKED = "job {job} has no commit marker"


@dataclass(frozen=True, slots=True)
class FoundVersions:
    """Committed versions of an application, as one marker tells them."""

    store_id: str
    application: str
    versions: Versions


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A marked job that may be chosen, and the place of its objects in the file."""

    version: tuple[str, str, str]
    """Store, application and version."""
    job: str
    epoch: int
    is_complete: bool
    written_ms: int
    offset: int
    lines: int

    @property
    def as_versions(self) -> FoundVersions:
        """The version that its marker's name tells, even of a damaged marker."""
        store_id, application, batch = self.version
        return FoundVersions(store_id, application, Versions(((int(batch), int(batch)),)))

    @property
    def rank(self) -> tuple[int, bool, int, str]:
        """Sort key; the greatest is chosen."""
        return self.epoch, self.is_complete, -self.written_ms, self.job


def batch_objects(
    storage: ChunkStorage, listed: Iterable[StoredObject], beside: Path, versions: list[FoundVersions]
) -> Iterator[FoundObject | LeftOver]:
    """Identify the objects of a listing of `uploads/`; append the committed versions that markers tell to `versions`.

    Memory grows with the batches: their objects are kept in a file next to `beside`.
    """
    path = beside.with_name(f"{beside.name}.batches")
    chosen: dict[tuple[str, str, str], _Candidate] = {}
    lost: list[_Candidate] = []
    try:
        with path.open("wb") as file:
            for _, of_job in groupby(listed, key=lambda stored: stored.name.rpartition("/")[0]):
                objects = {stored.name: stored for stored in of_job}
                markers = _markers(objects)
                yield from _told(storage, markers, versions)
                candidate, rows, omitted = _look(storage, objects, list(markers.values()), file.tell())
                yield from omitted
                if candidate is None:
                    continue
                for row in rows:
                    file.write(json.dumps(asdict(row)).encode() + b"\n")
                versions.append(candidate.as_versions)
                other = chosen.get(candidate.version)
                if other is None or candidate.rank > other.rank:
                    chosen[candidate.version] = candidate
                kept = chosen[candidate.version]
                lost += [each for each in (candidate, other) if each is not None and each is not kept]
        for candidate in sorted(chosen.values(), key=lambda each: each.offset):
            yield from _read(path, candidate)
        for candidate in lost:
            why = f"version {candidate.version[-1]} was also committed by another job"
            yield from (LeftOver(row.name, why) for row in _read(path, candidate))
    finally:
        path.unlink(missing_ok=True)


def _markers(objects: Mapping[str, StoredObject]) -> dict[str, Marker]:
    parsed = {name: batch_markers.parse_name(name) for name in objects}
    return {name: marker for name, marker in parsed.items() if marker is not None}


def _told(storage: ChunkStorage, markers: Iterable[str], versions: list[FoundVersions]) -> Iterator[LeftOver]:
    """Add the versions that markers hold; yield the damaged ones, of which the name still marks the job."""
    for name in markers:
        try:
            versions.append(FoundVersions(*batch_markers.read_marker(storage, name)))
        except (DataLoss, NotFound) as exc:
            yield LeftOver(name, str(exc))


def _look(
    storage: ChunkStorage, objects: Mapping[str, StoredObject], markers: Sequence[Marker], offset: int
) -> tuple[_Candidate | None, list[FoundObject], list[LeftOver]]:
    """Return a marked job, the existing objects that its manifest names, and the other objects."""
    data = {name: stored for name, stored in objects.items() if not is_about_job(name)}
    parts, left = _newest(storage, [name for name in objects if is_manifest(name)])
    if not parts:
        return None, [], [*(LeftOver(name, _NOT_COMMITTED) for name in data), *left]
    head = parts[0]
    rows: list[FoundObject] = []
    listed: list[str] = []
    try:
        record = BatchRecord(application=head.application, batch=head.batch, job=head.job)
        record.check()
        marker = next((each for each in markers if each.is_of(record.application, record.number)), None)
        if marker is None:
            raise DataLoss(_NOT_MARKED.format(job=head.job))
        for part in parts:
            for segment in part.segments:
                listed += (uploaded.name for uploaded in segment.objects)
                rows += _described(head, segment, data)
        if len(set(listed)) < len(listed):
            raise DataLoss("its manifest assigns the bytes of an object to several segments")
    except DataLoss as exc:
        return None, [], [*(LeftOver(name, str(exc)) for name in data), *left]
    named = {row.name for row in rows}
    left += [LeftOver(name, _NOT_COMMITTED) for name in data if name not in named]
    version = (head.store_id, record.application, record.batch)
    is_complete = len(rows) == len(listed)
    return _Candidate(version, marker.job, marker.epoch, is_complete, head.written_ms, offset, len(rows)), rows, left


def _newest(storage: ChunkStorage, manifests: list[str]) -> tuple[list[pb.BatchManifest], list[LeftOver]]:
    """Return the parts of a job's last manifest with all parts present and sound, and the damaged parts of all."""
    damaged: list[LeftOver] = []
    attempts: dict[str, list[pb.BatchManifest]] = defaultdict(list)
    for name in manifests:
        try:
            part = read_parsed(storage, name, frames.parse_batch_manifest)
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
        if at > untrusted.MAX_OFFSET or not 0 < uploaded.length <= untrusted.MAX_OBJECT_BYTES:
            raise DataLoss("its manifest contains an impossible range")
        if stored is None:
            continue
        # How many bytes are in a compressed one, its seek table tells when they are verified.
        if not compressed_bytes(stored) and stored.length_bytes != uploaded.length:
            continue
        described = FoundObject(
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
            compressed_bytes=compressed_bytes(stored),
            storage_class=storage_class(stored),
        )
        checked_path(described)
        yield described


def _read(path: Path, candidate: _Candidate) -> Iterator[FoundObject]:
    with path.open("rb") as file:
        file.seek(candidate.offset)
        for _ in range(candidate.lines):
            yield FoundObject(**json.loads(file.readline()))
