"""What was found of a store in a bucket without a journal: objects that say what they are, and those that do not."""

from __future__ import annotations

from dataclasses import dataclass

from tierfs import names
from tierfs.errors import DataLoss, TierfsError
from tierfs.metadata.epochs import MAX_EPOCH

_MAX_SEGMENT_ID = 2**62
"""Far more than a counter reaches, and it can go on from there."""


@dataclass(frozen=True, slots=True)
class FoundObject:
    """One object of a store, by its own words."""

    name: str
    etag: str
    modified_ms: int
    store_id: str
    """Empty where it does not tell."""
    segment_id: int
    path: str
    start: int
    end: int
    epoch: int
    attempt: str
    crc32c: int | None
    """Of the segment's bytes; None where neither name nor metadata tell it: an old object of which a copy dropped the
    metadata."""
    pack_bytes: int = 0
    """Size of the pack that holds them among others; 0: they are the whole object."""
    object_offset: int = 0

    @property
    def length_bytes(self) -> int:
        """How many of the segment's bytes it has."""
        return self.end - self.start

    @property
    def object_bytes(self) -> int:
        """Size of the object."""
        return self.pack_bytes or self.length_bytes

    @property
    def label(self) -> str:
        """What it is called where it is left aside."""
        return f"{self.name}, {self.path} from {self.start}" if self.pack_bytes else self.name


@dataclass(frozen=True, slots=True)
class LeftOver:
    """An object that was not linked, and why."""

    name: str
    why: str


def checked_path(found: FoundObject) -> str:
    """The name of the segment. Raises DataLoss for a segment or an owner that cannot be."""
    if not (0 < found.segment_id <= _MAX_SEGMENT_ID and 0 < found.epoch <= MAX_EPOCH):
        raise DataLoss("it names an impossible segment or owner")
    try:
        path = names.join(names.split(found.path))
    except TierfsError as exc:
        raise DataLoss(f"it names an impossible segment: {exc}") from exc
    if path != found.path or not path or names.is_removed(path):
        raise DataLoss("it names an impossible segment")
    return path
