"""append --skip: what is skipped is compared with the end of the segment, and another input changes nothing."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.commands import started, tierfs
from tests.mount.waiting import eventually
from tierfs.app import inputs
from tierfs.app.compare import Compared, compare
from tierfs.app.inputs import InputSource
from tierfs.app.store import open_store
from tierfs.base.words.types import CRC_BLOCK_BYTES, ByteRange
from tierfs.engine.metadata import directories
from tierfs.faces.cli.commands import skipped

BLOCK = CRC_BLOCK_BYTES
DATA = Random(15).randbytes(9 * BLOCK + 77)
REST = b"and the rest"


def in_one_chunk(store: Path) -> None:
    tierfs("append", "s", store=store, stdin=DATA)


def in_many_appends(store: Path) -> None:
    for start, end in ((0, 1), (1, BLOCK), (BLOCK, BLOCK + 5), (BLOCK + 5, 5 * BLOCK), (5 * BLOCK, len(DATA))):
        tierfs("append", "s", store=store, stdin=DATA[start:end])


def in_chunks_beside_the_grid(store: Path) -> None:
    tierfs("config", "/", f"chunk_bytes={BLOCK + 1001}", store=store)
    in_many_appends(store)


def behind_another_input(store: Path) -> None:
    tierfs("append", "s", store=store, stdin=b"x" * 100)
    in_many_appends(store)


def in_a_stream(store: Path) -> None:
    tierfs("config", "/", f"seal_bytes={2 * BLOCK + 7}", store=store)
    in_many_appends(store)
    assert len(tierfs("ls", store=store).out.split()) > 1


def in_both_tiers(store: Path) -> None:
    in_many_appends(store)
    tierfs("offload", store=store)


def cold(store: Path) -> None:
    in_chunks_beside_the_grid(store)
    tierfs("offload", store=store)
    tierfs("evict", store=store)


def cold_as_one_object(store: Path) -> None:
    cold(store)
    tierfs("consolidate", store=store)


def cold_behind_another_input(store: Path) -> None:
    behind_another_input(store)
    tierfs("offload", store=store)
    tierfs("evict", store=store)


def cold_with_others_in_an_object(store: Path) -> None:
    for name in ("a", "s", "z"):
        tierfs("append", name, store=store, stdin=DATA if name == "s" else DATA[:999])
    tierfs("offload", store=store)
    tierfs("evict", store=store)


LAYOUTS = [
    in_one_chunk,
    in_many_appends,
    in_chunks_beside_the_grid,
    behind_another_input,
    in_a_stream,
    in_both_tiers,
    cold,
    cold_as_one_object,
    cold_behind_another_input,
    cold_with_others_in_an_object,
]
PLACES = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1001, 5 * BLOCK + 4, len(DATA) - 1]


def length_of(store: Path, name: str = "s") -> int:
    last = [line.split() for line in tierfs("ls", "-l", store=store).out.splitlines() if f" {name}" in line][-1][-1]
    return int(tierfs("info", last, "--json", store=store).json["length"])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_input_that_begins_as_the_segment_goes_on_and_another_is_refused(
    store: Path, layout: Callable[[Path], None]
) -> None:
    layout(store)
    end = length_of(store)
    for place in PLACES:
        other = bytearray(DATA + REST)
        other[place] ^= 1
        refused = tierfs("append", "s", "--skip", len(DATA), store=store, stdin=bytes(other), check=False)
        assert (refused.code, refused.out) == (5, "")
        assert refused.err.startswith("tierfs: the input differs from s: its bytes ")
        assert refused.err.endswith("append it without --skip\n")
        words = refused.err.split("its bytes ")[1].split()
        assert int(words[0]) <= place < int(words[2])
    assert length_of(store) == end
    told = tierfs("append", "s", "--skip", len(DATA), "--expect-offset", end, store=store, stdin=DATA + REST)
    assert [int(word) for word in told.out.split()[1:]] == [end, end + len(REST)]


@pytest.mark.parametrize("layout", [cold, cold_as_one_object, cold_with_others_in_an_object])
def test_cold_bytes_are_compared_without_the_cold_tier(store: Path, layout: Callable[[Path], None]) -> None:
    layout(store)
    (store / "cold").rename(store / "away")
    other = tierfs("append", "s", "--skip", len(DATA), store=store, stdin=bytes(len(DATA)), check=False)
    assert (other.code, "the input differs from" in other.err) == (5, True)
    tierfs("append", "s", "--skip", len(DATA), store=store, stdin=DATA + REST)


def test_bytes_that_cannot_be_read_are_not_compared_and_the_others_are(store: Path) -> None:
    cold_behind_another_input(store)
    tierfs("-q", "config", "read.deadline_s=1", store=store)
    (store / "cold").rename(store / "away")
    end, first = 100 + len(DATA), BLOCK - 100
    told = tierfs("append", "s", "--skip", len(DATA), store=store, stdin=DATA + REST, check=False)
    assert (told.code, told.out) == (0, f"s {end} {end + len(REST)}\n")
    assert f"compared only {len(DATA) - first} of the {len(DATA)} bytes to skip: s no longer has the others" in told.err


@pytest.mark.parametrize("before", [BLOCK, 3 * BLOCK + 5])
def test_a_dropped_head_is_not_compared_and_what_is_left_is(store: Path, before: int) -> None:
    in_many_appends(store)
    tierfs("trim", "s", "--before", before, "--yes", store=store)
    other = bytearray(DATA)
    other[-1] ^= 1
    refused = tierfs("append", "s", "--skip", len(DATA), store=store, stdin=bytes(other), check=False)
    assert (refused.code, "the input differs from" in refused.err) == (5, True)
    other = bytearray(DATA + REST)
    other[0] ^= 1
    told = tierfs("append", "s", "--skip", len(DATA), store=store, stdin=bytes(other), check=False)
    assert told.code == 0
    # A chunk that was cut keeps the blocks that it has.
    compared = int(told.err.split()[2])
    assert len(DATA) - before <= compared < len(DATA)
    assert told.err == f"compared only {compared} of the {len(DATA)} bytes to skip: s no longer has the others\n"


def test_where_nothing_is_left_the_rest_is_appended_by_itself(store: Path) -> None:
    tierfs("append", "s", store=store, stdin=DATA)
    tierfs("trim", "s", "--before", len(DATA), "--yes", store=store)
    words = ("append", "s", "--skip", len(DATA))
    refused = tierfs(*words, store=store, stdin=DATA + REST, check=False)
    assert refused.code == 5
    assert refused.err == (
        f"tierfs: cannot compare the {len(DATA)} bytes to skip with s: they were dropped "
        "(Conflict, exit 5)\n"
        f"  if this is the same input, append its remaining bytes: tail -c +{len(DATA) + 1} FILE | "
        f"tierfs append --expect-offset {len(DATA)} s; "
        "if this is a different input, such as a log after its rotation, append it without --skip\n"
    )


@pytest.mark.parametrize(
    ("words", "stdin", "told"),
    [
        (("s", "--skip", 4), b"xabc", "cannot skip 4 bytes: s has only 3"),
        (("new", "--skip", 1), b"x", "cannot skip 1 bytes: new has only 0"),
        (("s", "--skip", 3), b"ab", "the input has 2 bytes, fewer than --skip 3"),
        (("s", "--skip", 3), b"", "the input has 0 bytes, fewer than --skip 3"),
        (("s", "--skip", 3), b"ax", "its bytes 0 to 2 differ from bytes 0 to 2 of the segment"),
        (("s", "--skip", 2), b"ab", "its bytes 0 to 2 differ from bytes 1 to 3 of the segment"),
    ],
)
def test_an_input_that_cannot_be_the_same_is_refused(
    store: Path, words: tuple[object, ...], stdin: bytes, told: str
) -> None:
    tierfs("append", "s", store=store, stdin=b"abc")
    refused = tierfs("append", *words, store=store, stdin=stdin, check=False)
    assert (refused.code, told in refused.err) == (5, True), refused
    assert tierfs("ls", store=store).out == "s\n"
    assert length_of(store) == 3


def test_a_position_that_moved_is_said_before_anything_is_read(store: Path) -> None:
    tierfs("append", "s", store=store, stdin=b"abc")
    moved = tierfs("append", "s", "--skip", 2, "--expect-offset", 2, store=store, stdin=b"abcd", check=False)
    assert (moved.code, "--expect-offset 3 --skip 3" in moved.err) == (8, True)
    assert tierfs("append", "s", "--skip", 3, "--expect-offset", 3, store=store, stdin=b"abcd").out == "s 3 4\n"


def test_what_another_process_appends_after_the_comparison_is_in_the_way(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tierfs("append", "s", store=store, stdin=b"abc")

    def compared(*words: Any) -> Compared:
        done = compare(*words)
        with started("append", "s", __file__, store=store, stdout=subprocess.DEVNULL) as process:
            assert process.wait(60) == 0
        return done

    monkeypatch.setattr(skipped, "compare", compared)
    end = 3 + Path(__file__).stat().st_size
    moved = tierfs("append", "s", "--skip", 3, store=store, stdin=b"abcd", check=False)
    assert (moved.code, f"its length is {end}" in moved.err) == (8, True)
    assert length_of(store) == end


def test_a_ledger_says_what_it_takes(store: Path) -> None:
    name = tierfs("ledger", "create", "topic", store=store).out.split()[0]
    refused = tierfs("append", name, "--skip", 1, store=store, stdin=b"x", check=False)
    assert (refused.code, "is a ledger" in refused.err) == (2, True)


def test_a_pipe_that_gives_a_new_log_s_first_line_and_no_more_is_refused(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_many_appends(store)
    reading, writing = os.pipe()
    monkeypatch.setattr(inputs, "STDIN_FD", reading)
    done: list[Compared] = []

    def work() -> None:
        with InputSource(["-"]) as source:
            done.append(compare(opened, [segment], segment.range, source))

    with open_store(store) as opened:
        with opened.metadata.read() as txn:
            segment = directories.segment_by_name(txn, "s")
        thread = threading.Thread(target=work)
        thread.start()
        try:
            os.write(writing, b"another line\n")
            assert eventually(lambda: bool(done), 20)
        finally:
            os.close(writing)
            thread.join()
            os.close(reading)
    assert (done[0].difference, done[0].compared_bytes) == (ByteRange(0, 13), 0)


def test_a_pipe_that_pauses_goes_on(store: Path) -> None:
    tierfs("append", "s", store=store, stdin=DATA[: 2 * BLOCK])
    piped = {name: subprocess.PIPE for name in ("stdin", "stdout")}
    with started("append", "s", "--skip", 2 * BLOCK, store=store, **piped, bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(DATA[: BLOCK // 2])
        # Its reader has them once the pipe is empty; then it waits, and compares what it has.
        assert eventually(lambda: not _unread(process.stdin))
        process.stdin.write(DATA[BLOCK // 2 :] + REST)
        process.stdin.close()
        process.stdin = None
        assert process.stdout.read().decode() == f"s {2 * BLOCK} {len(DATA) + len(REST)}\n"
    assert tierfs("info", "s", "--json", store=store).json["length"] == len(DATA) + len(REST)


def _unread(pipe: object) -> int:
    import array
    import fcntl
    import termios

    size = array.array("i", [0])
    fcntl.ioctl(pipe.fileno(), termios.FIONREAD, size)  # type: ignore[attr-defined]
    return size[0]


def test_files_are_one_input(store: Path, tmp_path: Path) -> None:
    parts = [tmp_path / name for name in "abc"]
    for part, (start, end) in zip(parts, ((0, 10), (10, 2 * BLOCK), (2 * BLOCK, 3 * BLOCK)), strict=True):
        part.write_bytes(DATA[start:end])
    tierfs("append", "s", *parts[:2], store=store)
    tierfs("append", "s", *parts, "--skip", 2 * BLOCK, store=store)
    refused = tierfs("append", "s", *reversed(parts), "--skip", 3 * BLOCK, store=store, check=False)
    assert refused.code == 5
    assert length_of(store) == 3 * BLOCK
