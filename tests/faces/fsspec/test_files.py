"""Open segments behave as files of Python do: the same bytes, positions and ends, whatever tier they are in."""

from __future__ import annotations

import io
import os
import random
from typing import IO, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import verbs
from tests.faces.fsspec.conftest import CHUNK_BYTES, make_cold, put
from tests.mount.conftest import append
from tierfs.app import store
from tierfs.app.open_segment import SegmentHandle
from tierfs.base.words.types import CRC_BLOCK_BYTES as BLOCK
from tierfs.base.words.types import ByteRange
from tierfs.faces.fsspec import TierfsFileSystem
from tierfs.faces.fsspec.join import join, of_slice

SIZE = 5 * CHUNK_BYTES + 321
CUT = CHUNK_BYTES + 17
DATA = ((bytes(random.Random(1).choices(range(97, 123), k=70)) + b"\n") * (SIZE // 71 + 1))[:SIZE]

KINDS = ("read", "readinto", "readline", "readall", "seek", "seek on", "seek from the end")
steps = st.tuples(st.sampled_from(KINDS), st.one_of(st.integers(0, 300), st.integers(0, SIZE + 10)))


def step(file: IO[bytes], what: str, number: int) -> object:
    """Do one thing to a file; what it answers, and where the file stands then."""
    if what == "readinto":
        buffer = bytearray(number)
        count = file.readinto(buffer)  # type: ignore[attr-defined,unused-ignore]
        return count, bytes(buffer[:count]), file.tell()
    seeks = {"seek": (number, os.SEEK_SET), "seek on": (number, os.SEEK_CUR)}
    seeks["seek from the end"] = (-min(number, len(DATA) - CUT), os.SEEK_END)
    if what in seeks:
        return file.seek(*seeks[what])
    calls: dict[str, Any] = {"read": lambda: file.read(number), "readline": file.readline, "readall": file.read}
    return calls[what](), file.tell()


@pytest.fixture(params=["both", "truncated"])
def segment(request: pytest.FixtureRequest, store: store.Store) -> bytes:
    """A segment `s`, one half in each tier; what a reader must find in it."""
    put(store, "s", DATA, "both")
    if request.param == "truncated":
        store.engine.truncate("s", CUT, cold_due_ms=0)
    return DATA[CUT:] if request.param == "truncated" else DATA


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(todo=st.lists(steps, max_size=12), buffer_bytes=st.sampled_from([None, 1, 1000, 1 << 20]))
def test_random_steps_give_what_a_file_of_python_gives(
    segment: bytes, fs: TierfsFileSystem, todo: list[tuple[str, int]], buffer_bytes: int | None
) -> None:
    plain = io.BufferedReader(io.BytesIO(segment))  # type: ignore[arg-type,unused-ignore]
    with fs.open("s", block_size=buffer_bytes) as file:
        assert [step(file, *one) for one in todo] == [step(plain, *one) for one in todo]


def test_lines_and_text(segment: bytes, fs: TierfsFileSystem) -> None:
    with fs.open("s") as file:
        assert list(file) == segment.splitlines(keepends=True)
    with fs.open("s", "r", encoding="ascii") as text:
        assert text.read() == segment.decode()
    assert fs.cat_file("s", -700, -5) == segment[-700:-5]


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


def test_a_file_has_the_length_it_was_opened_with_until_it_is_closed(store: store.Store, fs: TierfsFileSystem) -> None:
    append(store, "a/s", b"first\n")
    with fs.open("a/s") as file:
        append(store, "a/s", b"second\n")
        assert (file.path, file.size, file.details["name"]) == ("a/s", 6, "a/s")
        assert (file.readable(), file.seekable(), file.writable()) == (True, True, False)
        assert (file.read(), file.seek(0, os.SEEK_END)) == (b"first\n", 6)
        with pytest.raises(OSError, match="cannot seek"):
            file.seek(-7, os.SEEK_END)
        with pytest.raises(ValueError, match="whence"):
            file.seek(0, 3)
        assert (file.seek(10), file.read()) == (10, b"")
    for closed in (file, fs.open("a/s", "ab")):
        closed.close()
        closed.close()
        with pytest.raises(ValueError, match="closed"):
            closed.read() if closed is file else closed.write(b"x")
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


places = st.tuples(st.integers(0, 200), st.integers(0, 200)).map(lambda ends: ByteRange(min(ends), max(ends)))
ends = st.none() | st.integers(-250, 250)


@given(wanted=st.lists(places, max_size=12), gap=st.integers(0, 30), limit=st.integers(1, 200), start=ends, end=ends)
def test_joined_ranges_hold_what_was_asked_and_slices_are_pythons(
    wanted: list[ByteRange], gap: int, limit: int, start: int | None, end: int | None
) -> None:
    data, joined = bytes(range(200)), join(wanted, gap, limit)
    for one, (read, at) in zip(wanted, joined.places, strict=True):
        held = joined.reads[read]
        assert data[held.start : held.end][at : at + one.length_bytes] == data[one.start : one.end]
    longest = max((one.length_bytes for one in wanted), default=0)
    assert all(read.length_bytes <= max(limit, longest) for read in joined.reads)
    found = of_slice(start, end, len(data))
    assert data[found.start : found.end] == data[start:end]


def test_neighbours_share_a_read() -> None:
    wanted = [ByteRange(90, 100), ByteRange(0, 10), ByteRange(15, 20)]
    assert join(wanted, 5).reads == (ByteRange(0, 20), ByteRange(90, 100))
    assert join(wanted, 4).reads == (ByteRange(0, 10), ByteRange(15, 20), ByteRange(90, 100))
    assert join(wanted, 100, 20).reads == (ByteRange(0, 20), ByteRange(90, 100))
    assert join([ByteRange(0, 100), ByteRange(10, 20)], 5, 50).reads == (ByteRange(0, 100),)
