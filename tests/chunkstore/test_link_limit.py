"""The verdict of a measured link, from its figures alone."""

from __future__ import annotations

import pytest

from tierfs.chunkstore.link_limit import LinkLimit, LinkMeasurement, LinkRates, described, limit_of
from tierfs.types import MIB

MB = 1e6
MS = 0.001


def rates(
    alone: float, together: float, streams: int = 18, takes: int = 18, own: float = 0.0, busy: float = 0.0
) -> LinkRates:
    """Return rates in MB/s, measured by ranges of 4 MiB."""
    return LinkRates(alone * MB, together * MB, 4 * MIB, streams, takes, own, busy)


@pytest.mark.parametrize(
    ("first_byte_s", "found", "limit"),
    [
        # 15 ms and 90 MB/s carry 68 MB/s in a stream: 1225 in 18 of them, 272 in 4
        (15 * MS, rates(90, 1200), LinkLimit.CONNECTION),
        (15 * MS, rates(90, 950), LinkLimit.CONNECTION),
        (15 * MS, rates(90, 260, streams=4), LinkLimit.STREAMS_SETTING),
        (15 * MS, rates(90, 260, streams=4, own=1.0, busy=1.0), LinkLimit.STREAMS_SETTING),
        (15 * MS, rates(90, 600, own=1.1, busy=0.97), LinkLimit.PROCESSOR),
        (15 * MS, rates(90, 600, own=1.0, busy=0.3), LinkLimit.INTERPRETER),
        (15 * MS, rates(90, 600, own=0.5, busy=0.5), LinkLimit.COLD_TIER),
        (0.001, rates(600, 700, streams=4, takes=4, own=1.2, busy=0.6), LinkLimit.INTERPRETER),
        (0.001, rates(110, 112, streams=4, takes=4), LinkLimit.COLD_TIER),
        (0.0, rates(2000, 7900, streams=4, takes=4), LinkLimit.CONNECTION),
    ],
)
def test_the_limit_of_a_link(first_byte_s: float, found: LinkRates, limit: LinkLimit) -> None:
    assert limit_of(first_byte_s, found) is limit


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (rates(90, 1200), "90 MB/s by one connection, 1,200 MB/s by 18 (32.0 MiB read); limit: each connection"),
        (rates(90, 1200), "limit: each connection (90 MB/s x 18 streams)"),
        (rates(90, 260, streams=4), "limit: read.streams = 4, the link takes 18"),
        (rates(90, 600, busy=1), "limit: this machine's processor, all of whose cores are busy"),
        (rates(90, 600, own=1), "limit: this machine's processor: Python code runs on one core"),
        (rates(90, 600), "limit: the cold tier or the network"),
        (None, "first byte 15.0 ms; no object is large enough to measure more (32.0 MiB read)"),
    ],
)
def test_a_line_for_people(found: LinkRates | None, text: str) -> None:
    line = described(LinkMeasurement(15 * MS, 32 * MIB, found))
    assert line.startswith("first byte 15.0 ms")
    assert text in line


def test_fields_for_programs() -> None:
    unmeasured = dict.fromkeys(["connection_bytes_per_s", "bytes_per_s", "streams", "link_streams", "limit"])
    assert LinkMeasurement(0.5, 7, None).data() == {**unmeasured, "first_byte_s": 0.5, "read_bytes": 7}
    assert LinkMeasurement(15 * MS, 32 * MIB, rates(90, 260, streams=4)).data() == {
        "first_byte_s": 15 * MS,
        "connection_bytes_per_s": 90 * MB,
        "bytes_per_s": 260 * MB,
        "streams": 4,
        "link_streams": 18,
        "limit": "read.streams",
        "read_bytes": 32 * MIB,
    }
