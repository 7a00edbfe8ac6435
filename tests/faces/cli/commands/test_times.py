"""cat --since, info --at and ledger read by time, on adopted commit logs and ledgers, as by position."""

from __future__ import annotations

import json
import os
import time
from bisect import bisect_left
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Done, run, tierfs
from tests.engine.ledger.rocketmq import coda, log
from tests.reading.test_times import published
from tests.tiering.adoption.foreign import cat, write_files
from tests.tiering.adoption.pulsar import TOPIC, attempt, in_files, offloaded
from tests.tiering.adoption.test_growth import adopt
from tests.tiering.adoption.test_rocketmq import PLUGIN, Q
from tierfs import open_store
from tierfs.base.words.errors import InvalidRequest

NOW = 1_700_000_000_000
LOG = f"mq/{Q}/COMMIT_LOG"
TIMES = [NOW + number // 2 * 1000 for number in range(300)]
BODIES = [os.urandom(number * 7 % 900) for number in range(300)]


def printed(store: Path, *words: object) -> bytes:
    code, out, err = run(["-q", "--store", str(store), *map(str, words)], dict(os.environ), b"")
    assert (code, err) == (0, b"")
    return out


def lines(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.fixture
def logged(store: Path, tmp_path: Path) -> bytes:
    """A commit log in two file segments, the second one still open, which was adopted when it was shorter."""
    first = log(BODIES[:100], TIMES[:100]) + coda(TIMES[99])
    rest = log(BODIES[100:], TIMES[100:], start=len(first), first=100)
    base = f"{PLUGIN}/seg-{len(first)}/chunk/chunk-"
    half = len(log(BODIES[100:200], TIMES[100:200], start=len(first), first=100))
    theirs = write_files(tmp_path / "mq", {f"{PLUGIN}/seg-0/segment/segment-0": first, f"{base}0": rest[:half]})
    adopt(store, theirs, "mq")
    write_files(theirs, {f"{base}{half}": rest[half:]})
    adopt(store, theirs, "mq")
    return first + rest


def test_the_messages_of_a_commit_log_are_its_entries(store: Path, logged: bytes) -> None:
    read = lines(tierfs("ledger", "read", LOG, "--messages", store=store))
    assert [(row["queue_offset"], row["store_time_ms"]) for row in read] == list(enumerate(TIMES))
    entries = lines(tierfs("ledger", "read", LOG, "--json", store=store))
    assert [(row["entry_id"], row["length"]) for row in entries] == [
        (row["queue_offset"], row["length"]) for row in read
    ]
    some = lines(tierfs("ledger", "read", LOG, "--messages", "--from", 95, "--to", 105, store=store))
    assert some == read[95:105]
    one = printed(store, "ledger", "read", LOG, "--from", 7, "--to", 8)
    assert one == logged[read[7]["offset"] : read[7]["offset"] + read[7]["length"]]


@pytest.mark.parametrize(("since", "until"), [(0, 300), (10, 20), (98, 102), (199, 202), (299, 300), (50, 50)])
def test_a_commit_log_by_time_is_as_by_position(store: Path, logged: bytes, since: int, until: int) -> None:
    read = lines(tierfs("ledger", "read", LOG, "--messages", store=store))
    wanted = [row for row in read if TIMES[since] <= row["store_time_ms"] and row["queue_offset"] < 300]
    times = ("--since", TIMES[since])
    if until < 300:
        wanted = [row for row in wanted if row["store_time_ms"] < TIMES[until]]
        times = (*times, "--until", TIMES[until])
    assert lines(tierfs("ledger", "read", LOG, "--messages", *times, store=store)) == wanted
    data = printed(store, "cat", LOG, *times)
    first = logged.index(data) if data else 0
    assert not wanted or first == wanted[0]["offset"]
    assert sum(row["length"] for row in wanted) in (len(data), len(data) - 16)  # a coda may be among them
    place = tierfs("info", LOG, "--at", TIMES[since], "--json", store=store).json["at"]
    assert place["by"] == "messages"
    assert place["offset"] == next(row["offset"] for row in read if row["store_time_ms"] >= TIMES[since])


def test_a_ledger_of_pulsars_by_publish_time_is_as_by_position(store: Path, tmp_path: Path) -> None:
    entries = [published(NOW + number * 1000) for number in range(50)]
    theirs = write_files(tmp_path / "theirs", in_files(offloaded(entries, block_bytes=2000)))
    tierfs("-q", "adopt", theirs, "--into", "in", store=store)
    name = f"in/{TOPIC}/00000000000000000007"
    by_position = lines(tierfs("ledger", "read", name, "--messages", "--from", 20, "--to", 30, store=store))
    times = ("--since", "2023-11-14T22:13:40Z", "--until", NOW + 30_000)
    assert lines(tierfs("ledger", "read", name, "--messages", *times, store=store)) == by_position
    assert printed(store, "cat", name, *times) == b"".join(entries[20:30])
    place = tierfs("info", name, "--at", NOW + 19_001, "--json", store=store).json["at"]
    assert (place["entry_id"], place["first"], place["by"]) == (20, "2023-11-14T22:13:40.000Z", "messages")
    end = tierfs("info", name, "--at", "1s", store=store).out
    assert "entry 50: the end; all data is older" in end


@pytest.fixture
def topic(store: Path, tmp_path: Path) -> str:
    """Three ledgers of 20 entries, a second apart, of which the two around the first end are of one time."""
    seconds = [*range(20), 19, *range(20, 59)]
    numbered = [(7, seconds[:20]), (9, seconds[20:40]), (12, seconds[40:])]
    ledgers = [
        offloaded(
            [published(NOW + time * 1000) for time in times], ledger_id, uuid=attempt(ledger_id), block_bytes=2000
        )
        for ledger_id, times in numbered
    ]
    tierfs("-q", "adopt", write_files(tmp_path / "theirs", in_files(*ledgers)), "--into", "in", store=store)
    tierfs("ledger", "create", f"in/{TOPIC}", "--id", 8, store=store, check=False)  # an empty one
    return f"in/{TOPIC}"


def test_a_topic_by_publish_time_is_as_its_ledgers_by_position(store: Path, topic: str) -> None:
    read = lines(tierfs("ledger", "read", topic, "--messages", store=store))
    assert [row["ledger_id"] for row in read] == [7] * 20 + [9] * 20 + [12] * 20
    ids = lines(tierfs("ledger", "read", topic, "--json", store=store))
    assert [(row["ledger_id"], row["entry_id"]) for row in ids] == [(row["ledger_id"], row["entry_id"]) for row in read]
    times = [row["publish_time_ms"] for row in read]
    for since, until in [(0, 1), (15, 45), (19, 20), (20, 19), (38, 40), (57, 58), (58, 90), (70, 90)]:
        since_ms, until_ms = NOW + since * 1000, NOW + until * 1000
        wanted = [row for row in read if since_ms <= row["publish_time_ms"] < until_ms]
        words = ("ledger", "read", topic, "--messages", "--since", since_ms, "--until", until_ms)
        assert lines(tierfs(*words, store=store)) == wanted
        at = tierfs("info", topic, "--at", since_ms, "--json", store=store).json["at"]
        first = bisect_left(times, since_ms)
        expected = f"{read[first]['ledger_id']}:{read[first]['entry_id']}" if first < len(read) else "12:20"
        assert (at["position"], at["by"]) == (expected, "messages")
    assert "7:19, byte " in tierfs("info", topic, "--at", NOW + 19_000, store=store).out


def test_directories_that_are_no_topics(store: Path, topic: str) -> None:
    tierfs("ledger", "create", "empty", store=store, check=False)
    assert printed(store, "ledger", "read", "empty", "--since", "1h") == b""
    tierfs("ledger", "append", "text", store=store, stdin=b"a")
    for words, said in (
        (("ledger", "read", "in", "--since", "1h"), "in has no ledgers"),
        (("ledger", "read", topic, "--from", "3"), "--from and --to are ids of entries in a single ledger"),
        (("ledger", "read", "text", "--since", "1h"), "are not Pulsar's, so they have no times"),
        (("info", "in", "--at", "1h"), "in has no entries of ledgers"),
        (("info", "text", "--at", "1h"), "are not Pulsar's, so they have no times"),
        (("info", topic), "is a directory, not a segment"),
    ):
        refused = tierfs(*words, store=store, check=False)
        assert (refused.code, said in refused.err) == (2, True), refused


def test_a_time_of_no_date_is_shown_as_a_number(store: Path, tmp_path: Path) -> None:
    data = log([b"a", b"b"], [NOW, 2**63])
    adopt(store, write_files(tmp_path / "mq", {f"{PLUGIN}/seg-0/chunk/chunk-0": data}), "mq")
    assert f"the first message of {2**63} ms" in tierfs("info", LOG, "--at", NOW + 1, store=store).out
    tierfs("info", LOG, "--at", 300_000_000_000_000, store=store)


def test_bytes_without_messages_go_by_the_times_of_chunks(store: Path) -> None:
    tierfs("append", "s", store=store, stdin=b"one\n")
    assert printed(store, "cat", "s", "--since", "1h") == b"one\n"
    assert printed(store, "cat", "s", "--until", "1h") == b"", "it began later"
    assert printed(store, "cat", "s", "--until", "2100-01-01") == b"one\n"
    assert printed(store, "cat", "s", "--since", "2100-01-01") == b""
    assert "chunks" not in tierfs("cat", "s", "--since", "2100-01-01", store=store).err, "no chunk is cut by it"
    assert printed(store, "cat", "s", "--since", "9999999s") == b"one\n"
    begun = tierfs("cat", "s", "--since", "1h", store=store)
    assert (begun.out, begun.err) == ("one\n", "")  # no chunk is cut
    time.sleep(0.002)
    tierfs("append", "s", store=store, stdin=b"two\n")
    newest = tierfs("info", "s", "--json", store=store).json["modified"]
    said = tierfs("cat", "s", "--since", newest, store=store, check=False)
    assert (said.out, "by the times of its chunks" in said.err) == ("one\ntwo\n", True)
    assert tierfs("info", "s", "--at", newest, "--json", store=store).json["at"]["by"] == "chunks"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cat", "s", "--since", "yesterday"), "'yesterday' is not a time: write how long ago, like 2h"),
        (("cat", "s", "--since", "2026-13-01"), "is not a time"),
        (
            ("cat", "s", "--since", "1700000050"),
            "'1700000050' may be a date, or seconds since 1970: write how long ago",
        ),
        (("cat", "s", "--until", "20260131"), "'20260131' may be a date"),
        (("cat", "s", "--since", "0"), "'0' may be seconds ago, or milliseconds since 1970: write how long ago"),
        (("cat", "s", "--until", "1"), "'1' may be seconds ago, or milliseconds since 1970"),
        (("info", "s", "--at", "5"), "'5' may be seconds ago"),
        (("info", "s", "--at", "1.5"), "'1.5' may be seconds ago"),
        (("cat", "s", "--since", "9999999"), "'9999999' may be seconds ago"),
        (("info", "s", "--at", "10000000"), "'10000000' may be a date"),
        (("cat", "s", "--since", "1h", "--from", "0"), "--since and --from are mutually exclusive"),
        (("cat", "s", "--until", "1h", "-f"), "--until and --follow are mutually exclusive"),
        (("info", "s", "--at", "1h", "--map"), "--map and --at are mutually exclusive"),
        (("ledger", "read", "s", "--since", "1h", "--from", "0"), "--since and --from are mutually exclusive"),
        (("ledger", "read", "s", "--messages"), "s is neither a ledger nor a commit log of RocketMQ"),
    ],
)
def test_what_is_refused(store: Path, words: tuple[str, ...], said: str) -> None:
    tierfs("append", "s", store=store, stdin=b"text\n")
    refused = tierfs(*words, store=store, check=False)
    assert (refused.code, said in refused.err) == (2, True), refused


def test_a_ledger_of_other_entries_has_no_times(store: Path) -> None:
    tierfs("ledger", "create", "t", "--id", "1", store=store, check=False)
    tierfs("ledger", "append", "t", store=store, stdin=b"a\nb\n")
    name = json.loads(tierfs("ledger", "ls", "t", "--json", store=store).out.splitlines()[0])["segment"]
    refused = tierfs("ledger", "read", name, "--since", "1h", store=store, check=False)
    assert (refused.code, "are not Pulsar's, so they have no times" in refused.err) == (2, True), refused
    assert cat(store, name)


def test_a_python_program_finds_what_the_command_finds(store: Path, logged: bytes) -> None:
    at = datetime.fromtimestamp(TIMES[150] / 1000, UTC)
    told = tierfs("info", LOG, "--at", TIMES[150], "--json", store=store).json["at"]
    with open_store(store) as opened:
        place = opened.segment(LOG).find_time(at)
        assert (place.offset, place.end_offset, place.times_of) == (told["offset"], told["end_offset"], told["by"])
        assert place.time_ms == TIMES[150]
        with pytest.raises(InvalidRequest, match="has no time zone"):
            opened.segment(LOG).find_time(at.replace(tzinfo=None))
