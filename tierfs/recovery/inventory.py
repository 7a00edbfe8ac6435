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
from itertools import groupby
from pathlib import Path

from tierfs import names
from tierfs.background.cold import object_name
from tierfs.background.orphans import SEGMENTS_PREFIX
from tierfs.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.errors import DataLoss, NotFound, TierfsError
from tierfs.metadata import hostile
from tierfs.recovery.bucket import in_order
from tierfs.types import AttemptId, ByteRange, SegmentId

HEADS_AT_ONCE = 16
"""A HEAD is a round trip and hardly any work: 16 hide some 20 ms of it per object."""

MAX_EPOCH = 2**31 - 2
"""More owners than there can have been, and still countable with the changes of each."""

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


@dataclass(slots=True)
class Inventory:
    """The objects of a bucket, in a file."""

    path: Path
    stores: Counter[str] = field(default_factory=Counter)
    """Objects by the store that wrote them."""
    bytes: int = 0
    newest_epoch: int = 0
    highest_segment: int = 0
    owners: dict[str, int] = field(default_factory=dict)
    """Highest segment id by path: of two segments of one name the newer one has it."""
    directories: set[str] = field(default_factory=set)
    """Paths that lead to segments."""
    left: list[LeftOver] = field(default_factory=list)

    def has_name(self, segment_id: int, path: str) -> bool:
        """Whether a segment can have the name that its objects tell: it is the newest one, and no directory."""
        return self.owners[path] == segment_id and path not in self.directories

    @property
    def store_id(self) -> str:
        """The store that wrote most of the objects. Raises NotFound when there are none."""
        if not self.stores:
            raise NotFound("no object says that a tierfs store wrote it; there is nothing to recover")
        return self.stores.most_common(1)[0][0]

    def groups(self) -> Iterator[tuple[SegmentId, list[FoundObject]]]:
        """The objects of the store's segments, all of one segment together."""
        with self.path.open(encoding="utf-8") as file:
            rows = (FoundObject(**json.loads(line)) for line in file)
            for (store_id, number), group in groupby(rows, lambda row: (row.store_id, row.segment_id)):
                if store_id == self.store_id:
                    yield SegmentId(number), list(group)
                else:
                    self.left += [LeftOver(row.name, f"another store wrote it: {store_id}") for row in group]


def take(storage: ChunkStorage, path: Path) -> Inventory:
    """List every object below segments/ and ask each what it is; the file is written to `path`."""
    inventory = Inventory(path)

    def look(item: StoredObject) -> FoundObject | LeftOver:
        try:
            return parsed(storage.stat(item.name))
        except (DataLoss, NotFound) as exc:
            return LeftOver(item.name, str(exc))

    items = storage.list(SEGMENTS_PREFIX)
    with path.open("w", encoding="utf-8") as file, closing(in_order(items, look, HEADS_AT_ONCE)) as looked:
        for found in looked:
            if isinstance(found, LeftOver):
                inventory.left.append(found)
                continue
            _count(inventory, found)
            file.write(json.dumps(asdict(found)) + "\n")
    return inventory


def _count(inventory: Inventory, found: FoundObject) -> None:
    inventory.stores[found.store_id] += 1
    inventory.bytes += found.length_bytes
    inventory.newest_epoch = max(inventory.newest_epoch, found.epoch)
    inventory.highest_segment = max(inventory.highest_segment, found.segment_id)
    if found.path not in inventory.owners:
        parts = found.path.split("/")
        inventory.directories.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
    inventory.owners[found.path] = max(inventory.owners.get(found.path, 0), found.segment_id)


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
