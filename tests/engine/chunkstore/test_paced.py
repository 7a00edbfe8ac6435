"""A paced storage: every byte that passes counts, in its direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.paced import PacedStorage, TransferPace
from tierfs.engine.chunkstore.protocol import BufferSource, ComposedObject, ObjectPiece, PartedSource, Source

FAST = 1 << 40


class Parted(BufferSource):
    """A source with boundaries of its own."""

    part_lengths: Sequence[int] = (2, 1)


class Recording(MemoryStorage):
    """Keeps the parts that an upload was offered, and copies by the client."""

    parts: Sequence[int] | None = None

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> object:
        self.parts = source.part_lengths if isinstance(source, PartedSource) else None
        return super().put(name, source, metadata=metadata, create_only=create_only)

    def compose(self, name: str, pieces: Sequence[ObjectPiece], **named: object) -> ComposedObject:
        return ComposedObject.of(super().compose(name, pieces), client_bytes=7)


@pytest.fixture
def pace() -> TransferPace:
    return TransferPace(FAST)


def test_what_is_sent_and_received_counts_by_direction(pace: TransferPace) -> None:
    storage = PacedStorage(MemoryStorage(), pace)
    storage.put("a", BufferSource(bytes(3 * MIB)))
    assert (pace.sent.granted_bytes, pace.received.granted_bytes) == (3 * MIB, 0)
    storage.read_into("a", MIB, memoryview(bytearray(MIB)))
    assert (pace.sent.granted_bytes, pace.received.granted_bytes) == (3 * MIB, MIB)


def test_a_composition_counts_what_the_server_could_not_copy(pace: TransferPace) -> None:
    storage = PacedStorage(Recording(), pace)
    stored = storage.put("a", BufferSource(b"bytes"))
    storage.compose("b", [ObjectPiece("a", 0, 5, stored.etag)])
    assert (pace.sent.granted_bytes, pace.received.granted_bytes) == (5 + 7, 7)


def test_an_upload_keeps_the_boundaries_of_its_source(pace: TransferPace) -> None:
    inner = Recording()
    PacedStorage(inner, pace).put("a", Parted(b"abc"))
    assert inner.parts == (2, 1)
    PacedStorage(inner, pace).put("b", BufferSource(b"abc"))
    assert inner.parts is None
