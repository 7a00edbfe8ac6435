"""Open segments behave as files of Python do: the same bytes, positions and ends, whatever tier they are in."""

from __future__ import annotations

import io
import os
import random
from typing import IO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import verbs
from tests.fsspec.conftest import CHUNK_BYTES, PLACES, make_cold, put
from tests.mount.conftest import append
from tierfs.app import store
from tierfs.fsspec import TierfsFileSystem
from tierfs.fsspec.files import SegmentHandle
from tierfs.types import CRC_BLOCK_BYTES as BLOCK

SIZE = 5 * CHUNK_BYTES + 321
CUT = CHUNK_BYTES + 17
DATA = b"".join(bytes(random.Random(1).choices(range(97, 123), k=70)) + b"\n" for _ in range(SIZE // 71 + 1))[:SIZE]

offsets = st.integers(0, SIZE + 10)
sizes = st.one_of(st.integers(0, 300), st.integers(0, SIZE))
steps = st.one_of(
    st.tuples(st.just("read"), sizes),
    st.tuples(st.just("readinto"), sizes),
    st.tuples(st.just("readline"), st.just(-1)),
    st.tuples(st.just("readall"), st.just(0)),
    st.tuples(st.just("seek"), offsets),
    st.tuples(st.just("seek from the end"), offsets),
    st.tuples(st.just("seek on"), st.integers(0, 1000)),
)


def step(file: IO[bytes], what: str, number: int) -> object:
    """Do one thing to a file; what it answers, and where the file stands then."""
    if what == "readinto":
        buffer = bytearray(number)
        count = file.readinto(buffer)  # type: ignore[attr-defined]
        return count, bytes(buffer[:count]), file.tell()
    seeks = {"seek": (number, os.SEEK_SET), "seek on": (number, os.SEEK_CUR)}
    seeks["seek from the end"] = (-min(number, len(DATA) - CUT), os.SEEK_END)
    if what in seeks:
        return file.seek(*seeks[what])
    return {"read": file.read, "readline": file.readline, "readall": lambda _: file.read()}[what](number), file.tell()


@pytest.fixture(params=[*PLACES, "truncated"])
def segment(request: pytest.FixtureRequest, store: store.Store) -> bytes:
    """A segment `s` somewhere; what a reader must find in it."""
    put(store, "s", DATA, "both" if request.param == "truncated" else request.param)
    if request.param == "truncated":
        store.engine.truncate("s", CUT, cold_due_ms=0)
    return DATA[CUT:] if request.param == "truncated" else DATA


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(todo=st.lists(steps, max_size=12), buffer_bytes=st.sampled_from([None, 1, 1000, 1 << 20]))
def test_random_steps(
    segment: bytes, fs: TierfsFileSystem, todo: list[tuple[str, int]], buffer_bytes: int | None
) -> None:
    plain = io.BufferedReader(io.BytesIO(segment))  # type: ignore[arg-type]
    with fs.open("s", block_size=buffer_bytes) as file:
        assert [step(file, *one) for one in todo] == [step(plain, *one) for one in todo]


def test_lines_and_text(segment: bytes, fs: TierfsFileSystem) -> None:
    with fs.open("s") as file:
        assert list(file) == segment.splitlines(keepends=True)
    with fs.open("s", "r", encoding="ascii") as text:
        assert text.read() == segment.decode()


def test_slices(segment: bytes, fs: TierfsFileSystem) -> None:
    numbers = random.Random(2)
    ends = [None, 0, -1, len(segment), len(segment) + 5, *(numbers.randint(-SIZE, SIZE) for _ in range(20))]
    cuts = [(numbers.choice(ends), numbers.choice(ends)) for _ in range(60)]
    expected = [segment[start:end] for start, end in cuts]
    assert [fs.cat_file("s", start, end) for start, end in cuts] == expected
    assert fs.cat_ranges(["s"] * len(cuts), [start for start, _ in cuts], [end for _, end in cuts]) == expected


def test_how_much_a_read_fetches(store: store.Store, fs: TierfsFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole blocks of 128 KiB, at once all that is needed, and more each time that small reads continue."""
    append(store, "s", DATA)
    asked: list[tuple[int, int]] = []
    original = SegmentHandle.read_into

    def noted(opened: SegmentHandle, position: int, view: memoryview) -> int:
        asked.append((position, position + len(view)))
        return original(opened, position, view)

    monkeypatch.setattr(SegmentHandle, "read_into", noted)
    with fs.open("s") as file:
        for place, size in ((200_000, 10), (70_000, BLOCK), (0, 10), (None, BLOCK), (None, SIZE)):
            if place is not None:
                file.seek(place)
            file.read(size)
    assert asked[:4] == [(200_000, 2 * BLOCK), (70_000, 2 * BLOCK), (0, BLOCK), (BLOCK, 3 * BLOCK)]
    assert asked[4][0] == 3 * BLOCK


def test_a_file_has_the_length_it_was_opened_with(store: store.Store, fs: TierfsFileSystem) -> None:
    append(store, "a/s", b"first\n")
    with fs.open("a/s") as file:
        append(store, "a/s", b"second\n")
        assert (file.path, file.size, file.details["name"]) == ("a/s", 6, "a/s")
        assert (file.readable(), file.seekable(), file.writable()) == (True, True, False)
        assert file.read() == b"first\n"
        assert file.seek(0, os.SEEK_END) == 6
        with pytest.raises(OSError, match="cannot seek"):
            file.seek(-7, os.SEEK_END)
        with pytest.raises(ValueError, match="whence"):
            file.seek(0, 3)
        assert file.seek(10) == 10
        assert file.read() == b""
    assert fs.cat_file("a/s") == b"first\nsecond\n"


def test_bytes_that_become_cold_or_are_deleted_while_they_are_read(store: store.Store, fs: TierfsFileSystem) -> None:
    append(store, "s", DATA)
    with fs.open("s", block_size=1000) as file:
        head = file.read(10)
        make_cold(store, "s")
        assert head + file.read() == DATA
        verbs.delete(store, "s", recursive=False, now=True)
        file.seek(0)
        with pytest.raises(OSError, match="was deleted"):
            file.read()


@pytest.mark.parametrize("open_mode", ["rb", "ab"])
def test_a_closed_file_is_closed(store: store.Store, fs: TierfsFileSystem, open_mode: str) -> None:
    append(store, "s", DATA)
    file = fs.open("s", open_mode)
    file.close()
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.read() if open_mode == "rb" else file.write(b"x")
