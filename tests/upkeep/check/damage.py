"""A damage, what the check must say of it, and helpers of those who damage stores."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tierfs.app.store import Store
from tierfs.base.words.types import Tier
from tierfs.engine.metadata import chains, directories, tables
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.upkeep.check.findings import Kind

Do = Callable[[Store], None]


@dataclass(frozen=True, slots=True)
class Damage:
    """One way a store can be wrong."""

    do: Do
    kind: Kind
    """The finding it must give."""
    mended: bool = True
    lost: bool = False
    """Whether bytes are lost by it."""
    cold: bool = False
    """Whether only a check of the bucket sees it."""
    deep: bool = False
    """Whether only --deep sees it."""


class Damages(dict[str, Damage]):
    """Damages under the names of the functions that do them."""

    def add(self, kind: Kind, **marks: bool) -> Callable[[Do], Do]:
        """Decorate a function: it does a damage of this kind, with these marks of Damage."""

        def register(do: Do) -> Do:
            self[do.__name__] = Damage(do, kind, **marks)
            return do

        return register


def segment_of(txn: ReadTransaction, name: str) -> SegmentRecord:
    return directories.segment_by_name(txn, name)


def put_segment(txn: WriteTransaction, segment: SegmentRecord) -> None:
    """Without check(), which would refuse what is wrong."""
    txn.put_raw(SEGMENTS.name, tables.u64(segment.id), SEGMENTS.codec.to_message(segment).SerializeToString())


def chunk_of(txn: ReadTransaction, name: str, tier: Tier, number: int = 0) -> tuple[bytes, ChunkRecord]:
    segment = segment_of(txn, name)
    chunk = list(chains.chunks(txn, segment.id, tier))[number]
    return tables.chunk(segment.id, tier, chunk.start_offset), chunk


def holder_of(txn: ReadTransaction, name: str, tier: Tier, number: int = 0) -> ObjectRecord:
    return chains.object_of(txn, chunk_of(txn, name, tier, number)[1])


def local_path(store: Store, name: str, number: int = 0) -> Path:
    with store.metadata.read() as txn:
        return store.files.root / holder_of(txn, name, Tier.LOCAL, number).name


def cold_path(store: Store, name: str, number: int = 0) -> Path:
    with store.metadata.read() as txn:
        return store.paths.cold / holder_of(txn, name, Tier.COLD, number).name


def flip(path: Path, at: int) -> None:
    """Flip one bit and nothing else, as a rotting disk does."""
    status = path.stat()
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    data[at] ^= 0x04
    path.write_bytes(data)
    path.chmod(status.st_mode)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
