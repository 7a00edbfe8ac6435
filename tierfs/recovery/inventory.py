"""What the objects of a bucket say of themselves, one line each in a file: memory does not grow with them.

Every object is asked for its metadata (HEAD), several at once. What does not fit its own name, or says
nothing, is left aside with the reason; nothing is ever deleted.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path

from tierfs import names
from tierfs.background.cold import object_name
from tierfs.background.orphans import SEGMENTS_PREFIX
from tierfs.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.errors import DataLoss, NotFound, TierfsError
from tierfs.metadata import hostile
from tierfs.metadata.epochs import MAX_EPOCH
from tierfs.recovery.bucket import in_order
from tierfs.types import AttemptId, ByteRange, SegmentId

HEADS_AT_ONCE = 16
"""A HEAD is a round trip and hardly any work: 16 hide some 20 ms of it per object."""

_MAX_SEGMENT_ID = 2**62
"""Far more than a counter reaches, and it can go on from there."""

_FORMAT = "1"


@dataclass(frozen=True, slots=True)
class FoundObject:
    """One object of a store, by its own words."""

    name: str
    etag: str
    modified_ms: int
    store_id: str
    segment_id: int
    path: str
    start: int
    end: int
    epoch: int
    attempt: str
    crc32c: int

    @property
    def length_bytes(self) -> int:
        """Its size."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class LeftOver:
    """An object that was not linked, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Group:
    """The objects of one segment: of one store, one id and one name."""

    store_id: str
    segment_id: SegmentId
    path: str
    epoch: int
    """Of its newest object."""
    objects: list[FoundObject]


@dataclass(slots=True)
class _Run:
    """Lines of the inventory's file that follow each other and name one segment, of whatever store."""

    segment_id: int
    path: str
    offset: int
    count: int = 0
    epochs: dict[str, int] = field(default_factory=dict)
    """Newest epoch by store."""


@dataclass(slots=True)
class Inventory:
    """The objects of a bucket, in a file; memory grows with the segments, not with their objects."""

    path: Path
    stores: Counter[str] = field(default_factory=Counter)
    """Objects by the store that wrote them."""
    bytes: int = 0
    newest_epoch: int = 0
    highest_segment: int = 0
    owners: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """Newest epoch and highest segment id by store and path: of two segments of one name the newer one has it."""
    directories: set[str] = field(default_factory=set)
    """Paths that lead to segments."""
    left: list[LeftOver] = field(default_factory=list)
    _runs: list[_Run] = field(default_factory=list)

    def has_name(self, group: Group) -> bool:
        """Whether a segment can have the name that its objects tell: it is the newest one, and no directory."""
        newest = self.owners[group.store_id, group.path]
        return newest == (group.epoch, group.segment_id) and group.path not in self.directories

    @property
    def store_id(self) -> str:
        """The store that wrote most of the objects. Raises NotFound when there are none."""
        if not self.stores:
            raise NotFound("no object says that a tierfs store wrote it; there is nothing to recover")
        return self.stores.most_common(1)[0][0]

    def groups(self) -> Iterator[Group]:
        """The segments of the store, those with the newest objects first, each with all its objects.

        Before ids jumped with every epoch, two owners could give one id to two segments: the newer one has it.
        """
        ours = [run for run in self._runs if self.store_id in run.epochs]
        for run in sorted(ours, key=lambda run: -run.epochs[self.store_id]):
            objects = [one for one in self._read(run) if one.store_id == self.store_id]
            epoch = run.epochs[self.store_id]
            yield Group(self.store_id, SegmentId(run.segment_id), run.path, epoch, objects)

    def foreign(self) -> Iterator[LeftOver]:
        """The objects of other stores, which are left aside."""
        for run in self._runs:
            if run.epochs.keys() != {self.store_id}:
                rows = (one for one in self._read(run) if one.store_id != self.store_id)
                yield from (LeftOver(one.name, f"another store wrote it: {one.store_id}") for one in rows)

    def add(self, found: FoundObject, offset: int) -> None:
        """Count an object whose line begins at `offset` of the file."""
        self.stores[found.store_id] += 1
        self.bytes += found.length_bytes
        self.newest_epoch = max(self.newest_epoch, found.epoch)
        self.highest_segment = max(self.highest_segment, found.segment_id)
        run = self._runs[-1] if self._runs else None
        if run is None or (run.segment_id, run.path) != (found.segment_id, found.path):
            run = _Run(found.segment_id, found.path, offset)
            self._runs.append(run)
            parts = found.path.split("/")
            self.directories.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
        run.count += 1
        run.epochs[found.store_id] = max(run.epochs.get(found.store_id, 0), found.epoch)
        key = (found.store_id, found.path)
        self.owners[key] = max(self.owners.get(key, (0, 0)), (found.epoch, found.segment_id))

    def _read(self, run: _Run) -> list[FoundObject]:
        with self.path.open("rb") as file:
            file.seek(run.offset)
            return [FoundObject(**json.loads(line)) for line in islice(file, run.count)]


def take(storage: ChunkStorage, path: Path) -> Inventory:
    """List every object below segments/ and ask each what it is; the file is written to `path`."""
    inventory = Inventory(path)

    def look(item: StoredObject) -> FoundObject | LeftOver:
        try:
            return parsed(storage.stat(item.name))
        except (DataLoss, NotFound) as exc:
            return LeftOver(item.name, str(exc))

    items, offset = storage.list(SEGMENTS_PREFIX), 0
    with path.open("wb") as file, closing(in_order(items, look, HEADS_AT_ONCE)) as looked:
        for found in looked:
            if isinstance(found, LeftOver):
                inventory.left.append(found)
                continue
            inventory.add(found, offset)
            offset += file.write(json.dumps(asdict(found)).encode() + b"\n")
    return inventory


def parsed(item: StoredObject) -> FoundObject:
    """What an object says of itself. Raises DataLoss when it says nothing, or contradicts its name or size."""
    said = item.metadata
    if said.get("format") != _FORMAT:
        raise DataLoss("it does not say that tierfs wrote it")
    try:
        found = FoundObject(
            name=item.name,
            etag=item.etag,
            modified_ms=item.modified_ms,
            store_id=said["store"],
            segment_id=int(said["segment"]),
            path=base64.urlsafe_b64decode(said["name"]).decode(),
            start=int(said["start"]),
            end=int(said["end"]),
            epoch=int(said["epoch"]),
            attempt=said["attempt"],
            crc32c=int(said["crc32c"], 16),
        )
    except (KeyError, ValueError, binascii.Error) as exc:
        raise DataLoss("its metadata is damaged") from exc
    _check(found, item.length_bytes)
    return found


def _check(found: FoundObject, length_bytes: int) -> None:
    if not (0 < found.segment_id <= _MAX_SEGMENT_ID and 0 < found.epoch <= MAX_EPOCH):
        raise DataLoss("it names an impossible segment or owner")
    if not 0 <= found.start < found.end <= hostile.MAX_OFFSET or length_bytes != found.length_bytes:
        raise DataLoss(f"it has {length_bytes} bytes, and says that it holds {found.start} to {found.end}")
    try:
        path = names.join(names.split(found.path))
    except TierfsError as exc:
        raise DataLoss(f"it names an impossible segment: {exc}") from exc
    span = ByteRange(found.start, found.end)
    expected = object_name(path, SegmentId(found.segment_id), span, found.epoch, AttemptId(found.attempt))
    if expected != found.name or not path or path.startswith(names.REMOVED_PREFIX):
        raise DataLoss("its metadata contradicts its name")
