"""Frames of others: any form, whole or not, at once and as a stream."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable

import pytest
from cramjam import DecompressionError
from cramjam import zstd as other

from tests.doubles.mutations import mutations, times
from tests.engine.frames.objects import LEVEL, text
from tierfs.base.words.errors import DataLoss
from tierfs.engine.frames.boundaries import FrameWalk
from tierfs.engine.frames.skipped import skipped
from tierfs.engine.frames.zstd import Unpacking, compressed, decompress

PLAIN = text(300_000)
SMALL = text(900)


def by_program(*options: str, plain: bytes = SMALL) -> bytes:
    """Return what the program makes of a pipe: a frame without its size."""
    return subprocess.run(["zstd", *options, "--stdout"], input=plain, check=True, capture_output=True).stdout


FORMS: dict[str, Callable[[], bytes]] = {
    "of a pipe": by_program,
    "without a checksum": lambda: by_program("--no-check"),
    "with its size": lambda: compressed(SMALL, LEVEL),
    "of two": lambda: compressed(SMALL[:500], LEVEL) + by_program(plain=SMALL[500:]),
    "with skipped bytes": lambda: skipped(b"x" * 20) + compressed(SMALL, LEVEL) + skipped(b""),
    "with a large window": lambda: by_program("--long=27"),
}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    """Name of a form."""
    return str(request.param)


@pytest.fixture
def packed(form: str) -> bytes:
    """The small bytes in that form."""
    return FORMS[form]()


@pytest.fixture
def ends(form: str, packed: bytes) -> list[int]:
    """Where its frames end, by lengths that are known."""
    before = {
        "of two": [len(compressed(SMALL[:500], LEVEL))],
        "with skipped bytes": [28, 28 + len(compressed(SMALL, LEVEL))],
    }
    return [*before.get(form, []), len(packed)]


def streamed(packed: bytes, size_bytes: int = 700) -> bytes:
    """Return what a stream yields, read in small steps."""
    stream = Unpacking(io.BytesIO(packed))
    return b"".join(iter(lambda: stream.read(size_bytes), b""))


def whole_after(packed: bytes, pieces: int) -> bool:
    walk = FrameWalk()
    for at in range(0, len(packed), pieces):
        walk.feed(packed[at : at + pieces])
    return walk.is_whole


def test_every_form_is_read(packed: bytes) -> None:
    assert decompress(packed, len(SMALL)) == SMALL
    assert streamed(packed) == SMALL


@pytest.mark.parametrize("pieces", [1, 7, 10_000])
def test_a_walk_tells_whole_frames_in_pieces_of_any_size(packed: bytes, ends: list[int], pieces: int) -> None:
    assert [kept for kept in range(len(packed) + 1) if whole_after(packed[:kept], pieces)] == ends


def test_frames_that_are_cut_are_refused(packed: bytes, ends: list[int]) -> None:
    """No bytes are no frame, as to other readers."""
    for kept in set(range(len(packed))) - set(ends):
        with pytest.raises(DataLoss):
            decompress(packed[:kept], len(SMALL))


def test_a_stream_that_is_cut_says_so(packed: bytes, ends: list[int]) -> None:
    for kept in set(range(len(packed))) - set(ends):
        with pytest.raises(DataLoss):
            streamed(packed[:kept])


def test_a_stream_of_several_blocks_is_read_up_to_its_damage() -> None:
    packed = compressed(PLAIN, LEVEL)
    stream = Unpacking(io.BytesIO(packed[:-1]))
    assert stream.read(len(PLAIN)) == PLAIN
    with pytest.raises(DataLoss, match="not complete"):
        stream.read(1)


@pytest.mark.parametrize("limit", [0, 1, len(SMALL) - 1])
def test_more_than_the_limit_is_refused(packed: bytes, limit: int) -> None:
    with pytest.raises(DataLoss, match=f"more than {limit} bytes"):
        decompress(packed, limit)


def test_a_window_that_zstd_refuses_without_an_option_is_refused() -> None:
    packed = b"\x28\xb5\x2f\xfd\x00\x90" + b"\x01\x00\x00"
    with pytest.raises(DataLoss):
        decompress(packed, 100)
    with pytest.raises(DataLoss):
        streamed(packed)


def test_damaged_frames_are_judged_as_by_another_library(packed: bytes) -> None:
    for damaged in mutations(packed, 5, 100 * times()):
        into = bytearray(len(SMALL))
        expected: bytes | None
        try:
            expected = bytes(into[: other.decompress_into(damaged, into)])
        except DecompressionError:
            expected = None
        actual: bytes | None
        try:
            actual = decompress(damaged, len(SMALL))
        except DataLoss:
            actual = None
        assert actual == expected, damaged.hex()
