"""The contract of ChunkStorage.compose as tests: an object made of pieces of others."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tierfs.base.words.errors import AlreadyExists, DataLoss, InvalidRequest, NotFound
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage, ObjectPiece, StoredObject
from tierfs.engine.testing.chunk_storage import names, pending, put, read

CONTENT = random.Random(21).randbytes(20 * MIB)


def whole(stored: StoredObject) -> ObjectPiece:
    """Return all of an object as a piece."""
    return ObjectPiece(stored.name, 0, stored.length_bytes, stored.etag)


def part(stored: StoredObject, offset: int, length_bytes: int) -> ObjectPiece:
    """Return a range of an object as a piece."""
    return ObjectPiece(stored.name, offset, length_bytes, stored.etag)


def sources(storage: ChunkStorage, sizes: Sequence[int]) -> tuple[list[ObjectPiece], bytes]:
    """Return objects of these sizes as pieces, and their bytes one after another."""
    pieces, data = [], b""
    for number, size in enumerate(sizes):
        start = number * 999_983 % (len(CONTENT) - size)
        pieces.append(whole(put(storage, f"source/ü+{number}", CONTENT[start : start + size])))
        data += CONTENT[start : start + size]
    return pieces, data


class Composes:
    """Pieces in order, of one object or several, and what is no piece."""

    @pytest.mark.parametrize(
        "sizes",
        [
            [1],
            [5, 1, 1000],
            [5 * MIB, 5 * MIB + 1, 7 * MIB],
            [5 * MIB, 6 * MIB, 10],
            [10, 12 * MIB, 10, 20, 5 * MIB],
            [6 * MIB, 3, 6 * MIB, MIB],
        ],
        ids=lambda sizes: "-".join(f"{size / MIB:.3g}" for size in sizes),
    )
    def test_pieces_in_order(self, storage: ChunkStorage, sizes: list[int]) -> None:
        pieces, data = sources(storage, sizes)
        made = storage.compose("made/object", pieces, metadata={"attempt": "1", "start": "0"})
        assert (made.name, made.length_bytes) == ("made/object", len(data))
        assert made.metadata == {"attempt": "1", "start": "0"}
        stored = storage.stat("made/object")
        assert (stored.etag, stored.length_bytes, stored.metadata) == (made.etag, made.length_bytes, made.metadata)
        assert read(storage, "made/object", 0, len(data), if_match=made.etag) == data
        assert all(storage.stat(piece.name).etag == piece.etag for piece in pieces)

    def test_ranges_of_objects_one_of_them_twice(self, storage: ChunkStorage) -> None:
        first, second = put(storage, "first", CONTENT[: 12 * MIB]), put(storage, "second", CONTENT[-7 * MIB :])
        ranges = [(first, 100, 6 * MIB), (second, 1, 5), (first, 6 * MIB + 100, 5 * MIB + 1), (first, 0, 6 * MIB)]
        storage.compose("made", [part(*each) for each in ranges])
        expected = b"".join(
            (CONTENT[: 12 * MIB] if source is first else CONTENT[-7 * MIB :])[offset : offset + length]
            for source, offset, length in ranges
        )
        assert read(storage, "made", 0, len(expected)) == expected

    @pytest.mark.parametrize("size", [5, 6 * MIB])
    def test_composing_keeps_what_is_there(self, storage: ChunkStorage, size: int) -> None:
        pieces, data = sources(storage, [size, size])
        taken = put(storage, "taken", b"taken", attempt="1")
        with pytest.raises(AlreadyExists):
            storage.compose("taken", pieces, metadata={"attempt": "2"})
        assert storage.stat("taken") == taken
        assert storage.compose("taken", pieces, create_only=False).length_bytes == len(data)
        assert read(storage, "taken", 0, len(data)) == data

    @pytest.mark.parametrize("size", [100, 6 * MIB])
    @pytest.mark.parametrize("wrong", ["replaced", "missing", "short"])
    def test_a_piece_that_is_not_there_makes_nothing(self, storage: ChunkStorage, size: int, wrong: str) -> None:
        pieces, _ = sources(storage, [size, size, size])
        if wrong == "replaced":
            storage.put(pieces[1].name, BufferSource(CONTENT[7 : 7 + size]), create_only=False)
        elif wrong == "missing":
            storage.delete(pieces[1].name)
        else:
            pieces[1] = ObjectPiece(pieces[1].name, 1, size, pieces[1].etag)
        with pytest.raises(NotFound if wrong == "missing" else DataLoss):
            storage.compose("made", pieces)
        assert names(storage, "made") == []
        assert pending(storage) == []

    def test_what_is_no_piece_is_refused(self, storage: ChunkStorage) -> None:
        stored = put(storage, "object", b"bytes")
        for pieces in ([], [part(stored, 0, 0)], [part(stored, -1, 2)], [ObjectPiece("a/../b", 0, 1, stored.etag)]):
            with pytest.raises(InvalidRequest):
                storage.compose("made", pieces)
        for name, metadata in (("", {}), ("made", {"Upper": "x"})):
            with pytest.raises(InvalidRequest):
                storage.compose(name, [whole(stored)], metadata=metadata)
        assert names(storage) == ["object"]
