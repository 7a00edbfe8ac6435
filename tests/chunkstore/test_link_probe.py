"""Measuring a link by reads: the bytes that are read, and the figures of a link that is slow indeed."""

from __future__ import annotations

from contextlib import closing
from itertools import islice

import pytest

from tests.benchmarks.relay.loop import Slowness
from tests.benchmarks.relay.process import RelayServer
from tests.conftest import Bucket
from tierfs.chunkstore.link_probe import ReadRange, measure_link, pieces
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import BufferSource
from tierfs.chunkstore.s3.location import S3Location
from tierfs.chunkstore.s3.storage import S3Storage
from tierfs.chunkstore.wrappers import InstrumentedStorage
from tierfs.errors import NotFound
from tierfs.metrics import MetricName, Metrics
from tierfs.types import MIB

MB = 1_000_000
SLOW = Slowness(delay_s=0.03, rate_bytes_s=10 * MB)
BURST = 1.3
"""What socket buffers hold comes faster than the link is."""


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (4, [("a", 0, 4), ("a", 4, 4), ("b", 1, 4), ("a", 0, 4)]),
        (6, [("a", 0, 6), ("a", 0, 6), ("a", 0, 6), ("a", 0, 6)]),
        (99, [("a", 0, 10), ("a", 0, 10), ("a", 0, 10), ("a", 0, 10)]),
    ],
)
def test_pieces_of_one_length_come_round(length: int, expected: list[tuple[str, int, int]]) -> None:
    ranges = [ReadRange("a", 0, 10), ReadRange("b", 1, 5), ReadRange("c", 0, 3)]
    assert list(islice(pieces(ranges, length), 4)) == [ReadRange(*one) for one in expected]


@pytest.mark.parametrize(("length_bytes", "most_streams"), [(40 * MIB, 4), (MIB, 4), (9 * MIB, 1), (40 * MIB, 64)])
def test_no_more_is_read_than_allowed(length_bytes: int, most_streams: int) -> None:
    memory = MemoryStorage()
    memory.put("k", BufferSource(bytes(length_bytes)))
    metrics = Metrics()
    storage = InstrumentedStorage(memory, metrics)
    found = measure_link(storage, [ReadRange("k", 0, length_bytes)], most_streams=most_streams, most_bytes=32 * MIB)
    assert sum(metrics.values(MetricName.STORAGE_BYTES).values()) == found.read_bytes <= 32 * MIB
    assert found.rates is not None
    assert 1 <= found.rates.streams <= most_streams


def test_objects_that_are_too_small_tell_the_first_byte_only() -> None:
    storage = MemoryStorage()
    storage.put("k", BufferSource(bytes(1000)))
    found = measure_link(storage, [ReadRange("k", 0, 1000)], most_streams=4, most_bytes=32 * MIB)
    assert (found.rates, found.limit, found.read_bytes) == (None, None, 6000)
    assert found.first_byte_s > 0


def test_an_object_that_is_gone_is_an_error() -> None:
    with pytest.raises(NotFound):
        measure_link(MemoryStorage(), [ReadRange("k", 0, 4 * MIB)], most_streams=4, most_bytes=32 * MIB)


@pytest.mark.timeout(60)
def test_a_slow_link_is_measured_no_faster_than_it_is(moto_bucket: Bucket) -> None:
    endpoint, bucket = moto_bucket
    with RelayServer(endpoint.endpoint_url, SLOW) as relay:
        location = S3Location(bucket=bucket, endpoint_url=relay.endpoint_url)
        with closing(S3Storage(location)) as storage:
            storage.put("k", BufferSource(bytes(8 * MIB)))
            found = measure_link(storage, [ReadRange("k", 0, 8 * MIB)], most_streams=2, most_bytes=32 * MIB)
    assert found.first_byte_s >= SLOW.delay_s
    assert found.rates is not None
    assert found.rates.connection_bytes_per_s < BURST * SLOW.rate_bytes_s
    assert found.rates.bytes_per_s < BURST * 2 * SLOW.rate_bytes_s
    # Its limit is judged from these in test_link_limit.py: on a busy machine it is the processor, and rightly so.
    assert found.rates.link_streams > found.rates.streams == 2
