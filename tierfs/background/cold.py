"""The cold tier of a store as its tasks see it: where it is, how it is reached, whether we own it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass

from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.metadata.records import RECORD_VERSION, StoreRecord
from tierfs.types import AttemptId, ByteRange, LocationId, SegmentId


@dataclass(frozen=True, slots=True)
class ColdTier:
    """Where offload writes."""

    location_id: LocationId
    storage: ChunkStorage
    require_ours: Callable[[], None]
    """Raises unless the place was seen to be ours a moment ago (Publisher.require_recent_ownership)."""


def object_name(
    segment_path: str, segment_id: SegmentId, span: ByteRange, epoch: int, attempt: AttemptId, crc: int | None
) -> str:
    """Name of a cold object (design §6); never used twice.

    It holds the CRC32C of all bytes, so that a copy that drops all else proves itself; older objects have none.
    """
    known = "" if crc is None else f"-c{crc:08x}"
    return f"segments/{segment_path}/{segment_id}/chunk-{span.start:020d}-{span.end:020d}-e{epoch}-{attempt}{known}"


def object_metadata(
    store: StoreRecord, segment_path: str, segment_id: SegmentId, span: ByteRange, attempt: AttemptId, crc: int
) -> dict[str, str]:
    """What an object says of itself, so that a store can be rebuilt from objects alone. ASCII, under 2 KiB.

    A name is base64url: at most 800 bytes of it stay under S3's limit, percent-encoding would not.
    """
    return {
        "format": str(RECORD_VERSION),
        "store": store.store_id,
        "segment": str(segment_id),
        "name": base64.urlsafe_b64encode(segment_path.encode()).decode("ascii"),
        "start": str(span.start),
        "end": str(span.end),
        "epoch": str(store.store_epoch),
        "attempt": attempt,
        "crc32c": f"{crc:08x}",
    }


def pack_metadata(store: StoreRecord, attempt: AttemptId, crc: int) -> dict[str, str]:
    """What a pack says of itself to those who do not read its index."""
    return {
        "format": str(RECORD_VERSION),
        "store": store.store_id,
        "epoch": str(store.store_epoch),
        "attempt": attempt,
        "crc32c": f"{crc:08x}",
    }
