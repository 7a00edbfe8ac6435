"""Compressed objects of any form, in place of the plain ones of a store: what tasks read does not depend on it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from tierfs.app import store as app
from tierfs.base.bytes.checksum import block_crcs, crc32c
from tierfs.base.words.types import MIB, PayloadEncoding, Tier
from tierfs.engine.frames import zstd
from tierfs.engine.frames.frame_map import FRAME_BYTES, FrameMap
from tierfs.engine.frames.seek_table import FrameSize, seek_table
from tierfs.engine.metadata import checksums, frame_rows, tables
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.tables import OBJECTS


def compress(store: app.Store, seed: int | None = None, packs_only: bool = False) -> None:
    """Replace plain cold objects by compressed ones; by `seed` some, joined of sections with frames of any length."""
    chosen = None if seed is None else random.Random(seed)
    with store.metadata.read() as txn:
        records = [record for _, record in txn.scan(OBJECTS) if record.tier is Tier.COLD]
    for record in records:
        if record.encoding is not PayloadEncoding.RAW or (packs_only and not record.packed):
            continue
        if chosen is None or chosen.random() < 0.8:
            _replace(store, record, list(_sections(record.length, chosen)))


def _sections(length_bytes: int, chosen: random.Random | None) -> Iterator[list[int]]:
    """Yield the plain lengths of the frames of each section."""
    left = length_bytes
    while left:
        section = left if chosen is None else min(left, chosen.choice([50_000, FRAME_BYTES, 5 * FRAME_BYTES, 3 * MIB]))
        left -= section
        longest = FRAME_BYTES if chosen is None else chosen.choice([20_000, 50_000, FRAME_BYTES, 3 * FRAME_BYTES])
        yield [min(longest, section - at) for at in range(0, section, longest)]


def _replace(store: app.Store, record: ObjectRecord, sections: list[list[int]]) -> None:
    path = store.path / "cold" / record.name
    plain, stored = path.read_bytes(), bytearray()
    at, lengths, stored_lengths = 0, list[int](), list[int]()
    for section in sections:
        sizes = []
        for length in section:
            frame = zstd.compressed(plain[at : at + length], 1)
            at += length
            sizes.append(FrameSize(len(frame), length))
            stored += frame
        table = seek_table(sizes)
        stored += table
        lengths += [*(size.plain_bytes for size in sizes), 0]
        stored_lengths += [*(size.stored_bytes for size in sizes), len(table)]
    path.unlink()
    path.write_bytes(stored)
    frames = FrameMap.of(0, 0, lengths[:-1], stored_lengths[:-1], len(plain))
    compressed = replace(
        record,
        encoding=PayloadEncoding.ZSTD_FRAMES,
        stored_length=len(stored),
        stored_crc32c=crc32c(stored),
        etag=store.storage_of(record.location_id).stat(record.name).etag,
    )
    with store.metadata.write() as txn:
        txn.put(OBJECTS, tables.u64(record.id), compressed)
        checksums.delete(txn, record.id)
        frame_rows.put_compressed(txn, record.id, block_crcs(plain), frames, len(plain))
