"""What foreign writers leave behind step by step: adopted at each step, and followed from each step to the last.

A byte that readers were given never changes, no live byte is missing at the end, and no follow is stuck. The steps are
those of the sources: Pravega's chunklayer (WriteOperation, TruncateOperation, GarbageCollector) and RocketMQ's
S3FileSegment.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.doubles.manual_clock import ManualClock
from tests.tiering.adoption.foreign import cat, write_files
from tests.tiering.adoption.test_growth import plugin
from tests.tiering.adoption.test_pravega import S, slts
from tierfs.app.adopt import PRAVEGA, ROCKETMQ, Adopter
from tierfs.app.adopt_again import Readopter, remember
from tierfs.app.store import Store, open_store
from tierfs.base.bytes.progress import Meter
from tierfs.base.options.config import BackgroundSettings
from tierfs.base.words.types import ReadPriority
from tierfs.engine.chunkstore.protocol import StoredObject
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.reading.stream import copy_segment
from tierfs.tiering.adoption.tail import SETTLED_S, Tails
from tierfs.upkeep.holder.failures import Failures

Files = Mapping[str, bytes]
Step = tuple[Files, int]
"""All objects that there are, and the end of the bytes that are acknowledged."""

DATA = os.urandom(400_000)
JUNK = bytes(reversed(DATA))
"""What a deposed owner wrote: other bytes at each offset, which Pravega's own never are."""


@dataclass(frozen=True)
class History:
    """Steps of a writer, of which the last one is final; the segment begins at `start` then."""

    layout: str
    start: int
    steps: Sequence[Step]

    @property
    def end(self) -> int:
        return self.steps[-1][1]


def part(start: int, end: int, junk: int = 0) -> bytes:
    """The bytes of a chunk, and what comes after them without being acknowledged."""
    return DATA[start:end] + JUNK[end : end + junk]


def e(epoch: int, offset: int, number: int = 0) -> str:
    return slts(epoch, offset, number=number)


def without(files: Files, *names: str) -> Files:
    return {name: data for name, data in files.items() if name not in names}


def relocated(a: int, cut: int, b: int, c: int, junk: int) -> Iterator[Step]:
    """A truncation at `cut` in the chunk [a, b), by a later owner; [b, c) follows."""
    before = {e(1, a): part(a, b, junk), e(1, b): part(b, c)}
    yield before, c
    yield {**before, e(3, cut): b""}, c
    yield {**before, e(3, cut): part(cut, (cut + b) // 2)}, c
    copied = {**before, e(3, cut): part(cut, b)}
    yield copied, c
    yield without(copied, e(1, a)), c
    after = {**without(copied, e(1, a)), e(3, c): part(c, c + 50_000)}
    yield after, c + 50_000
    yield {**after, e(3, c + 50_000): part(c + 50_000, c + 60_000)}, c + 60_000


def relocated_alone() -> Iterator[Step]:
    """The first chunk is the last one too, and its copy is written on."""
    before = {e(1, 0): part(0, 100_000)}
    yield before, 100_000
    yield {**before, e(2, 90_000): part(90_000, 100_000)}, 100_000
    yield {**before, e(2, 90_000): part(90_000, 130_000)}, 130_000
    yield {e(2, 90_000): part(90_000, 140_000)}, 140_000


def relocated_twice() -> Iterator[Step]:
    """The copy of a copy, by another owner, before either original is deleted."""
    first = {e(1, 0): part(0, 100_000, junk=3), e(2, 100_000): part(100_000, 200_000)}
    yield first, 200_000
    yield (second := {**first, e(3, 90_000): part(90_000, 100_000)}), 200_000
    yield (third := {**second, e(5, 99_000): part(99_000, 100_000)}), 200_000
    yield without(third, e(3, 90_000)), 200_000
    yield without(third, e(3, 90_000), e(1, 0)), 200_000


def failed_copies() -> Iterator[Step]:
    """A copy is given up, the owner changes, and the next truncation copies less."""
    before = {e(1, 0): part(0, 200_000), e(1, 200_000): part(200_000, 300_000)}
    yield before, 300_000
    yield (half := {**before, e(2, 170_000): part(170_000, 180_000)}), 300_000
    yield (both := {**half, e(3, 190_000): part(190_000, 200_000)}), 300_000
    yield without(both, e(1, 0)), 300_000
    yield without(both, e(1, 0), e(2, 170_000)), 300_000


def failed_over() -> Iterator[Step]:
    """An owner writes more than it acknowledged, and the next one begins at the acknowledged length, twice."""
    yield {e(1, 0): part(0, 100_000)}, 100_000
    yield {e(1, 0): part(0, 100_000, junk=20_000)}, 100_000
    first = {e(1, 0): part(0, 100_000, junk=20_000), e(2, 100_000): part(100_000, 100_010)}
    yield first, 100_010
    yield (second := {**first, e(2, 100_000): part(100_000, 150_000, junk=7)}), 150_000
    third = {**second, e(1, 120_000): JUNK[120_000:130_000], e(4, 150_000): part(150_000, 150_001)}
    yield third, 150_001
    yield {**third, e(4, 150_000): part(150_000, 200_000)}, 200_000


def retried() -> Iterator[Step]:
    """A write fails half-way, and its owner goes on in a new chunk, with the same epoch."""
    first = {e(1, 0): part(0, 50_000, junk=100)}
    yield {e(1, 0): part(0, 50_000)}, 50_000
    yield first, 50_000
    yield {**first, e(1, 50_000, 1): b""}, 50_000
    yield (second := {**first, e(1, 50_000, 1): part(50_000, 60_000)}), 60_000
    yield {**second, e(1, 60_000, 2): part(60_000, 70_000)}, 70_000


def deleted_in_any_order() -> Iterator[Step]:
    """Pravega's collector deletes the chunks of a head one after the other, in any order."""
    files = {e(1, a): part(a, a + 50_000) for a in range(0, 200_001, 50_000)}
    yield files, 250_000
    yield (moved := {**files, e(2, 145_000): part(145_000, 150_000)}), 250_000
    yield (one := without(moved, e(1, 50_000))), 250_000
    yield (two := without(one, e(1, 100_000))), 250_000
    yield without(two, e(1, 0)), 250_000


def rotated(base: int) -> Iterator[Step]:
    """A file segment's chunks, the sealed object while it comes and when it is there, and the next file segment."""
    chunks = {plugin(0): part(0, 40_000), plugin(40_000): part(40_000, base)}
    yield {plugin(0): part(0, 40_000)}, 40_000
    yield {plugin(0): part(0, 40_000), plugin(40_000): JUNK[40_000:50_000]}, 40_000  # an upload that is repeated
    yield chunks, base
    yield {**chunks, plugin(None): b""}, base
    yield {**chunks, plugin(None): part(0, 60_000)}, base
    yield (sealed := {**chunks, plugin(None): part(0, base)}), base
    yield (following := {**sealed, plugin(0, base): part(base, base + 10)}), base + 10
    yield without(following, plugin(0)), base + 10
    yield (rest := without(following, plugin(0), plugin(40_000))), base + 10
    grown = {**rest, plugin(10, base): part(base + 10, base + 90_000)}
    yield grown, base + 90_000
    yield without(grown, plugin(None)), base + 90_000


HISTORIES = {
    "the head is relocated": History(PRAVEGA, 90_000, list(relocated(0, 90_000, 100_000, 200_000, 0))),
    "the head is relocated without what was not acknowledged": History(
        PRAVEGA, 90_000, list(relocated(0, 90_000, 100_000, 200_000, 500))
    ),
    "the head is relocated from the middle of a block": History(
        PRAVEGA, 270_001, list(relocated(10_000, 270_001, 300_000, 310_000, 1))
    ),
    "the only chunk is relocated": History(PRAVEGA, 90_000, list(relocated_alone())),
    "a copy is relocated": History(PRAVEGA, 99_000, list(relocated_twice())),
    "a copy fails": History(PRAVEGA, 190_000, list(failed_copies())),
    "owners change": History(PRAVEGA, 0, list(failed_over())),
    "a write fails": History(PRAVEGA, 0, list(retried())),
    "chunks are deleted in any order": History(PRAVEGA, 145_000, list(deleted_in_any_order())),
    "a file segment is sealed and rotated": History(ROCKETMQ, 90_000, list(rotated(90_000))),
}

CASES = [
    pytest.param(history, step, id=f"{name}, from step {step}")
    for name, history in HISTORIES.items()
    for step in range(len(history.steps))
]


class Follower:
    """A place that a store follows, and all that its readers were given."""

    def __init__(self, path: Path, layout: str) -> None:
        tierfs("-q", "init", "--cold", "none", store=path / "store")
        self.root, self.layout = path / "theirs", layout
        self.clock = ManualClock()

    def put(self, files: Files) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        write_files(self.root, files)

    def begin(self, store: Store) -> Readopter:
        adopter = Adopter(store, self.layout, "in", grows=True)
        planned = adopter.plan(adopter.find(str(self.root)))
        adopter.adopt(planned, 2, Meter())
        remember(store, adopter, planned, 1)
        self.failures = Failures(store.metadata, BackgroundSettings())
        return Readopter(store, self.failures)

    def given(self, store: Store) -> dict[int, bytes]:
        """The readable bytes of each run, by their start."""
        with store.metadata.read() as txn:
            segments = list(runs(txn))
        found: dict[int, bytes] = {}
        for segment in segments:
            taken = bytearray()
            copy_segment(store.reader(), segment, None, None, ReadPriority.LOCAL_FIRST, taken.extend)
            found[segment.start_offset] = bytes(taken)
        return found


def runs(txn: ReadTransaction) -> Iterator[SegmentRecord]:
    entry = directories.find(txn, "in")
    if entry is not None:
        yield from (segment for _, segment in directories.segments_below(txn, entry, "in"))


@pytest.mark.parametrize(("history", "step"), CASES)
def test_followed_from_each_step(tmp_path: Path, history: History, step: int, expected_warnings: list[str]) -> None:
    expected_warnings.append("adopt [0-9]+ failed")  # while a step is under way; nothing may be left of it
    follower = Follower(tmp_path, history.layout)
    follower.put(history.steps[step][0])
    with open_store(tmp_path / "store", follower.clock) as store:
        readopter = follower.begin(store)
        for files, _ in history.steps[step:]:
            follower.put(files)
            for _ in range(2):
                follower.clock.advance(2)
                readopter.look()
                for start, data in follower.given(store).items():
                    assert data == DATA[start : start + len(data)]
        # What is left waits for some time, and for the pause after a failure.
        for _ in range(10):
            follower.clock.advance(SETTLED_S + 60)
            readopter.look()
        assert not follower.failures._rows
        final = follower.given(store)
        assert covered_to(final, history.start) == history.end
        assert all(data == DATA[start : start + len(data)] for start, data in final.items())


def covered_to(found: Mapping[int, bytes], start: int) -> int:
    """Where the right bytes end that begin at `start`, or before it."""
    at = start
    for begin, data in sorted(found.items()):
        expected = DATA[begin : begin + len(data)]
        wrong = (place for place in range(len(data)) if data[place] != expected[place])
        right = len(data) if data == expected else next(wrong)
        at = max(at, begin + right) if begin <= at else at
    return at


@pytest.mark.parametrize(("history", "step"), CASES)
def test_adopted_once_at_each_step(tmp_path: Path, history: History, step: int) -> None:
    """All acknowledged bytes are there; after them there may be some that its system still cuts."""
    follower = Follower(tmp_path, history.layout)
    files, end = history.steps[step]
    follower.put(files)
    with open_store(tmp_path / "store", follower.clock) as store:
        adopter = Adopter(store, history.layout, "in")
        planned = adopter.plan(adopter.find(str(follower.root)))
        adopter.adopt(planned, 2, Meter())
        assert not planned.plan.refused
        assert not [outcome.error for outcome in planned.outcomes if outcome.error]
        assert covered_to(follower.given(store), min(history.start, end)) >= end


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("at", [1, 131_071, 131_072, 131_073, 199_998])
def test_a_tail_that_was_shown_and_is_cut_is_compared_with_what_cut_it(
    tmp_path: Path, at: int, same: bool, expected_warnings: list[str]
) -> None:
    """After a while the last chunk is shown; the next owner began before its end all the same."""
    follower = Follower(tmp_path, PRAVEGA)
    first = {e(1, 0): part(0, 200_000)}
    follower.put(first)
    with open_store(tmp_path / "store", follower.clock) as store:
        readopter = follower.begin(store)
        for delay_s in (1, SETTLED_S - 1):
            follower.clock.advance(delay_s)
            readopter.look()
        assert follower.given(store) == {0: b""}
        follower.clock.advance(1)
        readopter.look()
        assert follower.given(store) == {0: DATA[:200_000]}
        shorter = JUNK[at:199_999] if not same else DATA[at:199_999]
        longer = JUNK[at:300_000] if not same else DATA[at:300_000]
        expected_warnings.append(f"adopt [0-9]+ failed: .*{e(2, at)} starts at byte {at}, in the middle of ")
        for cut in (shorter, longer):
            follower.put({**first, e(2, at): cut})
            for _ in range(5):
                follower.clock.advance(SETTLED_S + 60)
                readopter.look()
                (found,) = follower.given(store).values()
                assert found == DATA[: len(found)]
                assert len(found) >= 200_000
        errors = [row.error for row in follower.failures._rows.values()]
        assert (len(found), len(errors)) == ((300_000, 0) if same else (200_000, 1))
        assert same or f"in the middle of {e(1, 0)}, and differs from the bytes adopted" in errors[0]


def test_an_idle_last_chunk_is_there_at_once_and_a_busy_one_is_named(tmp_path: Path) -> None:
    follower = Follower(tmp_path, PRAVEGA)
    follower.put({e(1, 0): part(0, 10), e(1, 10): part(10, 30)})
    words = ("adopt", "--as", "pravega", follower.root, "--into", "in", "--every", "1h")
    store = tmp_path / "store"
    done = tierfs(*words, store=store, check=False)
    assert f"{e(1, 10)}" in done.err
    assert "adopted with the next object" in done.err
    assert cat(store, f"in/{S}") == DATA[:10]
    os.utime(follower.root / e(1, 10), (0, 0))
    # By hand too, once the place is followed.
    tierfs("-q", "adopt", "--as", "pravega", follower.root, "--into", "in", store=store, check=False)
    assert cat(store, f"in/{S}") == DATA[:30]
    write_files(follower.root, {e(1, 30): part(30, 40)})
    tierfs("-q", "adopt", "--as", "pravega", follower.root, "--into", "in", store=store, check=False)
    assert cat(store, f"in/{S}") == DATA[:30]


def test_a_last_object_that_is_written_over_waits_anew() -> None:
    tails = Tails()

    def settled(length: int, etag: str, now_s: float) -> int:
        tails.begin()
        found = tails.settled(StoredObject("last", length, etag, 0), now_s, 0)
        tails.end()
        return found

    assert [settled(5, "a", 0), settled(5, "a", SETTLED_S - 0.1), settled(5, "b", SETTLED_S)] == [0, 0, 0]
    assert settled(5, "b", 2 * SETTLED_S - 0.1) == 0
    assert settled(9, "c", 2 * SETTLED_S) == 5, "longer, by an append"
    assert settled(9, "c", 3 * SETTLED_S) == 9
    assert settled(4, "d", 9 * SETTLED_S) == 0
    tails.begin()
    tails.end()
    assert settled(4, "d", 10 * SETTLED_S) == 0, "it was not the last one meanwhile"


def test_an_object_that_is_longer_than_what_counts_of_it_is_not_damage(tmp_path: Path) -> None:
    store, cold, root = (tmp_path / name for name in ("store", "cold", "theirs"))
    cold.mkdir()
    tierfs("-q", "init", "--cold-dir", cold, store=store, check=False)
    first, second = root / e(1, 0), root / e(2, 200_000)
    write_files(root, {e(1, 0): part(0, 200_000, junk=5), e(2, 200_000): part(200_000, 300_000)})
    tierfs("-q", "adopt", "--as", "pravega", root, "--into", "in", store=store, check=False)

    def checked() -> tuple[int, str]:
        done = tierfs("check", store=store, check=False)
        return done.code, done.out

    assert (checked()[0], cat(store, f"in/{S}")) == (0, DATA[:300_000])
    tierfs("-q", "backup", f"in/{S}", "--to-bucket", store=store)
    for file in (first, second):
        file.write_bytes(file.read_bytes() + JUNK[:99])
    assert checked()[0] == 0
    tierfs("-q", "rm", f"in/{S}", "--now", "--yes", store=store)
    tierfs("-q", "restore", f"in/{S}", "--from-bucket", store=store)
    assert cat(store, f"in/{S}") == DATA[:300_000]
    data = bytearray(first.read_bytes())
    data[150_000] ^= 1
    first.write_bytes(bytes(data))
    code, out = checked()
    assert (code, e(1, 0) in out, "do not match their checksums" in out) == (74, True, True), out
    first.write_bytes(part(0, 199_999))
    code, out = checked()
    assert (code, "it has 199999 bytes, its record says 200000" in out) == (74, True), out
