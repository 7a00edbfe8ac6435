"""Describe an object of a bucket by its name, its index, and its user metadata: what a recovery without a journal has.

An object that contradicts itself, or has no description, raises DataLoss: it is not linked, and reported with the
reason.
"""

from __future__ import annotations

import base64
import binascii
import logging
from dataclasses import replace

from tierfs.app.found_objects import FoundObject, LeftOver, checked_path, compressed_bytes, storage_class
from tierfs.base.words import names, object_names
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.names import printable
from tierfs.base.words.types import AttemptId, ByteRange, SegmentId
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.metadata import untrusted
from tierfs.tiering.objects import object_name
from tierfs.tiering.packs.format import parse_name, read_pack

log = logging.getLogger(__name__)

_FORMAT = "1"


def parsed_pack(storage: ChunkStorage, item: StoredObject) -> list[FoundObject | LeftOver]:
    """Read the entries of a pack's index. Raises DataLoss when the pack contradicts itself.

    An entry whose segment was being removed when the pack was made is left out alone: the others are still good.
    """
    contents = read_pack(storage, item.name, item.length_bytes)
    index, is_compressed = contents.index, contents.section is not None
    named = parse_name(item.name)
    assert named is not None, "its index was read by its name"
    described = [
        FoundObject(
            name=item.name,
            etag=item.etag,
            modified_ms=item.modified_ms,
            store_id=index.store_id,
            segment_id=entry.segment_id,
            path=entry.path,
            start=entry.range.start,
            end=entry.range.end,
            epoch=index.store_epoch,
            attempt=index.attempt,
            crc32c=entry.crc32c,
            pack_bytes=contents.payload_bytes if is_compressed else item.length_bytes,
            object_offset=entry.object_offset,
            appended=named.object_id if index.appended else 0,
            compressed_bytes=item.length_bytes if is_compressed else 0,
            storage_class=storage_class(item),
        )
        for entry in index.entries
    ]
    return [_kept_entry(entry) for entry in described]


def _kept_entry(entry: FoundObject) -> FoundObject | LeftOver:
    if names.is_removed(entry.path):
        return LeftOver(entry.label, "its segment was being removed")
    checked_path(entry)
    return entry


def parsed(item: StoredObject) -> FoundObject:
    """Describe an object by its name, and by its user metadata unless a copy dropped them.

    A name with the CRC32C of the bytes decides if a copy altered the metadata. Raises DataLoss when the object is not
    a store's, or when an older name and the metadata contradict each other, or the size.
    """
    named = _named(item)
    if item.metadata.get("format") == _FORMAT:
        try:
            return _agreed(named, _described(item), item.length_bytes)
        except DataLoss as exc:
            if named is None or named.crc32c is None:
                raise
            log.info("%s: %s; the CRC32C in its name is used", printable(item.name), exc)
            named = replace(named, store_id=item.metadata.get("store", ""))
    if named is None:
        raise DataLoss("neither its name nor its metadata are of tierfs")
    _check(named, item.length_bytes)
    return named


def _agreed(named: FoundObject | None, described: FoundObject, length_bytes: int) -> FoundObject:
    """Return the description by metadata. Raises DataLoss if the name or the size contradicts it."""
    _check(described, length_bytes)
    if named is None or (named.crc32c is not None and named.crc32c != described.crc32c):
        raise DataLoss("its metadata contradicts its name")
    return described


def _named(item: StoredObject) -> FoundObject | None:
    """Return the description by the name alone; None for a name that tierfs gives no object."""
    parsed = object_names.CHUNK.fullmatch(item.name)
    if parsed is None:
        return None
    return FoundObject(
        name=item.name,
        etag=item.etag,
        modified_ms=item.modified_ms,
        store_id="",
        segment_id=int(parsed["segment"]),
        path=parsed["path"],
        start=int(parsed["start"]),
        end=int(parsed["end"]),
        epoch=int(parsed["epoch"]),
        attempt=parsed["attempt"],
        crc32c=None if parsed["crc"] is None else int(parsed["crc"], 16),
        compressed_bytes=compressed_bytes(item),
        storage_class=storage_class(item),
    )


def _described(item: StoredObject) -> FoundObject:
    """Return the description by the user metadata. Raises DataLoss if they are damaged."""
    metadata = item.metadata
    try:
        return FoundObject(
            name=item.name,
            etag=item.etag,
            modified_ms=item.modified_ms,
            store_id=metadata["store"],
            segment_id=int(metadata["segment"]),
            path=base64.urlsafe_b64decode(metadata["name"]).decode(),
            start=int(metadata["start"]),
            end=int(metadata["end"]),
            epoch=int(metadata["epoch"]),
            attempt=metadata["attempt"],
            crc32c=int(metadata["crc32c"], 16),
            compressed_bytes=compressed_bytes(item),
            storage_class=storage_class(item),
        )
    except (KeyError, ValueError, binascii.Error) as exc:
        raise DataLoss("its metadata is damaged") from exc


def _check(item: FoundObject, length_bytes: int) -> None:
    path = checked_path(item)
    if not 0 <= item.start < item.end <= untrusted.MAX_OFFSET or length_bytes != item.stored.length_bytes:
        raise DataLoss(f"it has {length_bytes} bytes, but its metadata says {item.start} to {item.end}")
    if item.length_bytes > untrusted.MAX_OBJECT_BYTES:  # of a compressed object, only its seek table tells the truth
        raise DataLoss(f"no object has all bytes from {item.start} to {item.end}")
    if item.name not in _names_of(item, path):
        raise DataLoss("its metadata contradicts its name")


def _names_of(item: FoundObject, path: str) -> list[str]:
    """Return the names that such an object can have; older ones are without the CRC32C."""
    segment_id, held, attempt = SegmentId(item.segment_id), ByteRange(item.start, item.end), AttemptId(item.attempt)
    if item.compressed_bytes:
        return [object_name(path, segment_id, held, item.epoch, attempt, item.crc32c, is_compressed=True)]
    return [object_name(path, segment_id, held, item.epoch, attempt, crc) for crc in (item.crc32c, None)]
