"""Pravega: headers, names of chunks, and which of their bytes are the segment."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.adoption.foreign import ForeignBucket, directory_state, write_files
from tests.adoption.planned import left_out, listed, picture, refused
from tests.adoption.test_directory import cat, states
from tests.commands import tierfs
from tests.conftest import Bucket
from tierfs.adoption.plan import AdoptionPlan
from tierfs.adoption.pravega import (
    ChunkName,
    HeaderChunk,
    is_rolling_chunk,
    parse_chunk_name,
    parse_header,
    plan_pravega,
)
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import BufferSource
from tierfs.errors import InvalidRequest

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


def test_a_header() -> None:
    data = b"maxsize=1024&0=s$offset.0&10=s$offset.10&"
    assert starts(parse_header(data, "s$header")) == [(0, "s$offset.0"), (10, "s$offset.10")]


def test_a_concat_shifts_the_chunks_that_came_with_it() -> None:
    data = header((0, "t"), rest="concat=2@20&maxsize=99&0=s$offset.0&5=s$offset.5&30=t$offset.30&")
    assert starts(parse_header(data, "h")) == [(0, "t"), (20, "s$offset.0"), (25, "s$offset.5"), (30, "t$offset.30")]


def test_two_concats_one_behind_the_other() -> None:
    data = header((0, "t"), rest="concat=1@10&0=a&concat=1@15&0=b&20=t2&")
    assert starts(parse_header(data, "h")) == [(0, "t"), (10, "a"), (15, "b"), (20, "t2")]


def test_a_concat_that_never_came_to_be_counts_for_nothing() -> None:
    data = header((0, "t"), rest="concat=2@20&20=t$offset.20&25=t$offset.25&")
    assert starts(parse_header(data, "h")) == [(0, "t"), (20, "t$offset.20"), (25, "t$offset.25")]


@pytest.mark.parametrize(
    "data",
    [b"x&", b"=a&", b"0=&", b"-1=a&", b"x=a&", b"maxsize=x&", b"concat=1&", b"concat=1@x&", b"concat=x@1&",
     b"5=a&4=b&", b"\xff=a&", f"{2**63}=a&".encode(), f"concat=1@{2**63 - 1}&0=a&1={2**63 - 1}&".encode()],
)  # fmt: skip
def test_what_is_no_header(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="h\\$header"):
        parse_header(data, "h$header")


@given(st.binary(max_size=200))
def test_hostile_headers_are_parsed_or_refused(data: bytes) -> None:
    try:
        found = parse_header(data, "h")
    except InvalidRequest:
        return
    assert [one.start_offset for one in found] == sorted(one.start_offset for one in found)
    assert all(0 <= one.start_offset < 2**63 for one in found)


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


def test_chunks_of_one_epoch_follow_each_other_and_the_head_may_be_cut() -> None:
    plan = of_lengths({slts(1, 100): 10, slts(1, 110): 5})
    assert picture(plan) == {f"in/{S}": (100, [(slts(1, 100), 10), (slts(1, 110), 5)])}


def test_garbage_behind_a_failed_write_is_cut() -> None:
    """Upstream's vector: writes of 1, 2, 3, 4 bytes, one byte of garbage behind each; the last one's stays."""
    plan = of_lengths({slts(1, 0): 2, slts(1, 1): 3, slts(1, 3): 4, slts(1, 6): 5})
    assert picture(plan) == {
        f"in/{S}": (0, [(slts(1, 0), 1), (slts(1, 1), 2), (slts(1, 3), 3), (slts(1, 6), 5)]),
    }


def test_what_a_zombie_wrote_is_never_part_of_the_segment() -> None:
    plan = of_lengths({slts(1, 0): 15, slts(1, 15): 10, slts(2, 10): 7, slts(1, 17): 3, slts(3, 17): 2})
    assert picture(plan) == {f"in/{S}": (0, [(slts(1, 0), 10), (slts(2, 10), 7), (slts(3, 17), 2)])}
    assert left_out(plan) == {slts(1, 15), slts(1, 17)}


def test_of_two_tries_at_one_offset_the_higher_epoch_and_then_the_longer_one_counts() -> None:
    plan = of_lengths({slts(1, 0): 9, slts(2, 0, number=1): 4, slts(2, 0, number=2): 5})
    assert picture(plan) == {f"in/{S}": (0, [(slts(2, 0, number=2), 5)])}
    assert left_out(plan) == {slts(1, 0), slts(2, 0, number=1)}


def test_behind_a_hole_begins_another_segment() -> None:
    plan = of_lengths({slts(1, 0): 10, slts(1, 20): 5})
    assert picture(plan) == {f"in/{S}": (0, [(slts(1, 0), 10)]), f"in/{S}.20": (20, [(slts(1, 20), 5)])}
    assert "bytes 10 to 20 are nowhere" in plan.warnings[0]


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
        }
    )
    assert set(picture(plan)) == {"in/good"}
    assert refused(plan) == {"in/evil": "NotFound", "in/bad": "InvalidRequest"}
    assert left_out(plan) == {"empty$header"}


def test_a_header_without_chunks_is_an_empty_segment_and_stops_no_other() -> None:
    plan = planned({"new$header": b"maxsize=100&", "s$header": header((0, chunk(0, "s"))), chunk(0, "s"): b"abc"})
    assert picture(plan) == {"in/new": (0, []), "in/s": (0, [(chunk(0, "s"), 3)])}
    assert (refused(plan), left_out(plan)) == ({}, set())


def test_digits_of_other_scripts_are_no_numbers_in_names() -> None:
    assert parse_chunk_name(slts(1, 0).replace("E-1-", "E-\u0661-")) is None
    assert not is_rolling_chunk("s$offset.\u0660")


def test_a_huge_header_is_refused_before_it_is_read() -> None:
    plan = of_lengths({"s$header": 1 << 40})
    assert refused(plan) == {"in/s": "InvalidRequest"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    tierfs("-q", "init", store=tmp_path / "store")
    return tmp_path / "store"


def test_slts_in_a_bucket_reads_as_pravega_would(store: Path, moto_bucket: Bucket) -> None:
    theirs, data = ForeignBucket(moto_bucket), os.urandom(200_000)
    theirs.put({f"p/{slts(1, 0)}": data[:150_000] + b"zombie", f"p/{slts(2, 150_000)}": data[150_000:]})
    before = theirs.state()
    words = ("adopt", "pravega", theirs.url("p"), "--into", "prv", *theirs.options)
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
    done = tierfs("-q", "adopt", "pravega", root, "--into", "prv", "--json", store=store)
    assert states(done) == {f"prv/{S}": "adopted"}
    assert cat(store, f"prv/{S}") == b"hello, world"
    assert directory_state(root) == before
