"""Pravega: headers, names of chunks, and which of their bytes are the segment."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.commands import tierfs
from tests.conftest import Bucket
from tests.tiering.adoption.foreign import ForeignBucket, cat, directory_state, states, write_files
from tests.tiering.adoption.planned import left_out, listed, picture, refused
from tierfs.base.words.errors import InvalidRequest
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.tiering.adoption.plan import AdoptionPlan
from tierfs.tiering.adoption.pravega import HeaderChunk, is_rolling_chunk, parse_header, plan_pravega
from tierfs.tiering.adoption.slts import ChunkName, parse_chunk_name

S = "scope/stream/0.#epoch.0"


def slts(epoch: int, offset: int, segment: str = S, number: int = 0) -> str:
    return f"{segment}.E-{epoch}-O-{offset}.{uuid.UUID(int=number)}"


def chunk(offset: int, segment: str = S) -> str:
    return f"{segment}$offset.{offset}"


def header(*chunks: tuple[int, str], rest: str = "") -> bytes:
    return ("maxsize=1024&" + "".join(f"{offset}={name}&" for offset, name in chunks) + rest).encode()


def planned(files: dict[str, bytes]) -> AdoptionPlan:
    storage, plan = MemoryStorage(), AdoptionPlan()
    for name, data in files.items():
        storage.put(name, BufferSource(data))
    plan_pravega(plan, storage, storage.list(""), "in")
    return plan


def of_lengths(lengths: dict[str, int]) -> AdoptionPlan:
    plan = AdoptionPlan()
    plan_pravega(plan, MemoryStorage(), listed(lengths), "in")
    return plan


def starts(chunks: Sequence[HeaderChunk]) -> list[tuple[int, str]]:
    return [(one.start_offset, one.name) for one in chunks]


@pytest.mark.parametrize(
    ("data", "chunks"),
    [
        (b"maxsize=1024&0=s$offset.0&10=s$offset.10&", [(0, "s$offset.0"), (10, "s$offset.10")]),
        (
            header((0, "t"), rest="concat=2@20&maxsize=99&0=s$offset.0&5=s$offset.5&30=t$offset.30&"),
            [(0, "t"), (20, "s$offset.0"), (25, "s$offset.5"), (30, "t$offset.30")],
        ),
        (
            header((0, "t"), rest="concat=1@10&0=a&concat=1@15&0=b&20=t2&"),
            [(0, "t"), (10, "a"), (15, "b"), (20, "t2")],
        ),
        (
            header((0, "t"), rest="concat=2@20&20=t$offset.20&25=t$offset.25&"),
            [(0, "t"), (20, "t$offset.20"), (25, "t$offset.25")],
        ),
    ],
    ids=["no concat", "a concat shifts what came with it", "two concats", "a concat that never came to be"],
)
def test_a_header_tells_where_its_chunks_start(data: bytes, chunks: list[tuple[int, str]]) -> None:
    assert starts(parse_header(data, "s$header")) == chunks


@pytest.mark.parametrize(
    "data",
    [b"x&", b"=a&", b"0=&", b"-1=a&", b"x=a&", b"maxsize=x&", b"concat=1&", b"concat=1@x&", b"concat=x@1&",
     b"5=a&4=b&", b"\xff=a&", f"{2**63}=a&".encode(), f"concat=1@{2**63 - 1}&0=a&1={2**63 - 1}&".encode()],
)  # fmt: skip
def test_what_is_no_header(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="h\\$header"):
        parse_header(data, "h$header")


@given(st.lists(st.tuples(st.integers(0, 2**62), st.from_regex(r"[^&=]{1,20}", fullmatch=True)), max_size=20))
def test_headers_come_back(chunks: list[tuple[int, str]]) -> None:
    chunks.sort(key=lambda one: one[0])
    assert starts(parse_header(header(*chunks), "h")) == chunks


@given(st.text(min_size=1, max_size=40), st.integers(0, 2**62), st.integers(0, 2**62))
def test_names_of_chunks_come_back(segment: str, epoch: int, offset: int) -> None:
    assert parse_chunk_name(slts(epoch, offset, segment)) == ChunkName(segment, epoch, offset)


@pytest.mark.parametrize(
    "name", [S, f"{S}.E-1-O-2", f"{S}.E-1-O-2.x", f"{S}.E--1-O-2.{uuid.UUID(int=0)}", slts(2**63, 0), slts(0, 2**64)]
)
def test_what_is_no_chunk_name(name: str) -> None:
    assert parse_chunk_name(name) is None


Lengths = dict[str, int]
Kept = list[tuple[str, int]]

CHUNKS: dict[str, tuple[Lengths, dict[int, Kept], set[str]]] = {
    "chunks of one epoch follow each other and the head may be cut": (
        {slts(1, 100): 10, slts(1, 110): 5},
        {100: [(slts(1, 100), 10), (slts(1, 110), 5)]},
        set(),
    ),
    # Upstream's vector: writes of 1, 2, 3, 4 bytes, one byte of garbage behind each; the last one's stays.
    "garbage behind a failed write is cut": (
        {slts(1, 0): 2, slts(1, 1): 3, slts(1, 3): 4, slts(1, 6): 5},
        {0: [(slts(1, 0), 1), (slts(1, 1), 2), (slts(1, 3), 3), (slts(1, 6), 5)]},
        set(),
    ),
    "what a zombie wrote is never part of the segment": (
        {slts(1, 0): 15, slts(1, 15): 10, slts(2, 10): 7, slts(1, 17): 3, slts(3, 17): 2},
        {0: [(slts(1, 0), 10), (slts(2, 10), 7), (slts(3, 17), 2)]},
        {slts(1, 15), slts(1, 17)},
    ),
    "nor what it wrote after a run that a later owner continued": (
        {slts(1, 0): 10, slts(2, 10): 7, slts(1, 17): 3, slts(1, 20): 3},
        {0: [(slts(1, 0), 10), (slts(2, 10), 7)]},
        {slts(1, 17), slts(1, 20)},
    ),
    "nor what it wrote after a try at one offset": (
        {slts(1, 0): 10, slts(2, 0): 9, slts(1, 10): 7},
        {0: [(slts(2, 0), 9)]},
        {slts(1, 0), slts(1, 10)},
    ),
    "a relocated head deposes nobody": (
        {slts(3, 90): 10, slts(1, 100): 5, slts(2, 105): 5},
        {90: [(slts(3, 90), 10), (slts(1, 100), 5), (slts(2, 105), 5)]},
        set(),
    ),
    "a relocated head before its original is deleted": (
        {slts(1, 0): 103, slts(3, 90): 10, slts(1, 100): 5},
        {0: [(slts(1, 0), 90), (slts(3, 90), 10), (slts(1, 100), 5)]},
        set(),
    ),
    "what begins within a relocated head is a deposed owner's": (
        {slts(3, 90): 20, slts(1, 100): 5, slts(1, 110): 1},
        {90: [(slts(3, 90), 20), (slts(1, 110), 1)]},
        {slts(1, 100)},
    ),
    "an unfinished copy does not count": (
        {slts(1, 0): 100, slts(3, 80): 10, slts(1, 100): 5},
        {0: [(slts(1, 0), 100), (slts(1, 100), 5)]},
        {slts(3, 80)},
    ),
    "nor one that its own owner gave up": (
        {slts(1, 0): 100, slts(1, 50): 10, slts(1, 100): 5},
        {0: [(slts(1, 0), 100), (slts(1, 100), 5)]},
        {slts(1, 50)},
    ),
    "of two tries at one offset the higher epoch and then the longer one counts": (
        {slts(1, 0): 9, slts(2, 0, number=1): 4, slts(2, 0, number=2): 5},
        {0: [(slts(2, 0, number=2), 5)]},
        {slts(1, 0), slts(2, 0, number=1)},
    ),
    "behind a hole begins another segment": (
        {slts(1, 0): 10, slts(1, 20): 5},
        {0: [(slts(1, 0), 10)], 20: [(slts(1, 20), 5)]},
        set(),
    ),
    "behind a hole of one byte too": (
        {slts(1, 0): 10, slts(1, 11): 5},
        {0: [(slts(1, 0), 10)], 11: [(slts(1, 11), 5)]},
        set(),
    ),
}


@pytest.mark.parametrize(("lengths", "segments", "left"), CHUNKS.values(), ids=CHUNKS)
def test_what_a_zombie_wrote_is_never_part_of_the_segment(
    lengths: Lengths, segments: dict[int, Kept], left: set[str]
) -> None:
    plan = of_lengths(lengths)
    first = min(segments)
    assert picture(plan) == {
        f"in/{S}" if start == first else f"in/{S}.{start}": (start, kept) for start, kept in segments.items()
    }
    assert left_out(plan) == left
    holes = [f"bytes 10 to {start} are missing" for start in segments if start != first]
    assert [said for said in holes if said not in plan.warnings[0]] == []
    assert len(plan.warnings) == len(holes)


def test_what_may_be_a_copy_or_a_later_owners_chunk_refuses_the_segment_and_no_other() -> None:
    other = slts(1, 0, "scope/stream/1.#epoch.0")
    plan = of_lengths({slts(1, 0): 100, slts(3, 79): 10, slts(1, 100): 5, other: 1})
    assert (refused(plan), list(picture(plan))) == ({f"in/{S}": "InvalidRequest"}, ["in/scope/stream/1.#epoch.0"])
    (error,) = (str(error) for _, error in plan.refused)
    assert f"{slts(3, 79)} is either an unfinished copy of bytes in {slts(1, 0)}, or from a later owner" in error
    settled = of_lengths({slts(1, 0): 100, slts(3, 79): 22, slts(1, 100): 5})
    assert picture(settled) == {f"in/{S}": (0, [(slts(1, 0), 79), (slts(3, 79), 22)])}


def test_pravegas_own_segments_are_left_out() -> None:
    system = {slts(1, 0, "_system/containers/metadata_0"): 4, slts(1, 0, f"{S}$attributes.index"): 4, "note": 1}
    plan = of_lengths({slts(1, 0): 4, **system})
    assert (set(picture(plan)), left_out(plan)) == ({f"in/{S}"}, set(system))


def test_rolling_storage_ends_a_chunk_where_the_next_one_begins() -> None:
    plan = planned(
        {
            f"{S}$header": header((0, chunk(0)), (4, "empty"), (4, chunk(4)), (9, chunk(9))),
            chunk(0): b"abcd+garbage",
            chunk(4): b"efghi",
            chunk(9): b"jk",
            chunk(99): b"nobody names it",
        }
    )
    assert picture(plan) == {f"in/{S}": (0, [(chunk(0), 4), (chunk(4), 5), (chunk(9), 2)])}
    assert left_out(plan) == {chunk(99)}


def test_a_truncated_head_is_gone_and_a_missing_chunk_elsewhere_refuses_the_segment() -> None:
    chunks = ((0, chunk(0)), (4, chunk(4)), (8, chunk(8)))
    there = {chunk(4): b"efgh", chunk(8): b"ij"}
    assert picture(planned({f"{S}$header": header(*chunks), **there})) == {
        f"in/{S}": (4, [(chunk(4), 4), (chunk(8), 2)])
    }
    missing = planned({f"{S}$header": header(*chunks), chunk(0): b"abcd", chunk(8): b"ij"})
    assert (picture(missing), refused(missing)) == ({}, {f"in/{S}": "NotFound"})
    short = planned({f"{S}$header": header(*chunks), chunk(0): b"abc", **there})
    assert (picture(short), refused(short)) == ({}, {f"in/{S}": "DataLoss"})


def test_a_header_reads_nothing_outside_its_place_and_a_bad_one_stops_no_other() -> None:
    plan = planned(
        {
            "good$header": header((0, "good$offset.0")),
            "good$offset.0": b"good",
            "evil$header": header((0, "../../etc/passwd"), (4, "/etc/shadow")),
            "bad$header": b"\xff",
            "empty$header": b"",
            "new$header": b"maxsize=100&",
        }
    )
    assert picture(plan) == {"in/good": (0, [("good$offset.0", 4)]), "in/new": (0, [])}
    assert refused(plan) == {"in/evil": "NotFound", "in/bad": "InvalidRequest"}
    assert left_out(plan) == {"empty$header"}


def test_digits_of_other_scripts_are_no_numbers_in_names() -> None:
    assert parse_chunk_name(slts(1, 0).replace("E-1-", "E-\u0661-")) is None
    assert not is_rolling_chunk("s$offset.\u0660")


def test_a_huge_header_is_refused_before_it_is_read() -> None:
    plan = of_lengths({"s$header": 1 << 40})
    assert refused(plan) == {"in/s": "InvalidRequest"}


def test_slts_in_a_bucket_reads_as_pravega_would(store: Path, moto_bucket: Bucket) -> None:
    theirs, data = ForeignBucket(moto_bucket), os.urandom(200_000)
    theirs.put({f"p/{slts(1, 0)}": data[:150_000] + b"zombie", f"p/{slts(2, 150_000)}": data[150_000:]})
    before = theirs.state()
    words = ("adopt", "--as", "pravega", theirs.url("p"), "--into", "prv", *theirs.options)
    assert states(tierfs("-q", *words, "--json", store=store)) == {f"prv/{S}": "adopted"}
    assert cat(store, f"prv/{S}") == data
    tierfs("-q", "rm", "-r", "prv", "--yes", store=store)
    tierfs("-q", "gc", "--delete", "--grace", "0s", store=store)
    assert theirs.state() == before


def test_rolling_storage_in_a_directory_reads_as_pravega_would(store: Path, tmp_path: Path) -> None:
    other = f"{S}#transaction.{'0' * 32}"
    files = {
        f"{S}$header": header((0, chunk(0)), rest=f"concat=1@5&0={chunk(0, other)}&8={chunk(8)}&"),
        chunk(0): b"hello",
        chunk(0, other): b", w",
        chunk(8): b"orld",
    }
    root = write_files(tmp_path / "theirs", files)
    before = directory_state(root)
    done = tierfs("-q", "adopt", "--as", "pravega", root, "--into", "prv", "--json", store=store)
    assert states(done) == {f"prv/{S}": "adopted"}
    assert cat(store, f"prv/{S}") == b"hello, world"
    assert directory_state(root) == before
