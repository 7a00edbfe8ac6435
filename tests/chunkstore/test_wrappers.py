"""Wrappers: that the base forwards everything, and what limit and metrics add."""

from __future__ import annotations

import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest

from tests.doubles.scripted_storage import ScriptedStorage, When
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import BufferSource, ChunkStorage, PendingUpload, RangeUrls, StoredObject, Uploads
from tierfs.chunkstore.wrappers import InstrumentedStorage, LimitedStorage, Wrapped
from tierfs.clock import ManualClock
from tierfs.errors import NotFound, Unavailable
from tierfs.metrics import Metrics

LIMIT = 3


class SlowStorage(MemoryStorage):
    """Holds every stat until LIMIT of them are inside, and counts the most there ever were."""

    def __init__(self) -> None:
        super().__init__()
        self.barrier = threading.Barrier(LIMIT)
        self.lock = threading.Lock()
        self.inside = self.most = 0

    def stat(self, name: str) -> StoredObject:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.barrier.wait()
        with self.lock:
            self.inside -= 1
        return StoredObject(name, 0, "etag")


PROTOCOLS = [ChunkStorage, Uploads, RangeUrls]
MEMBERS = [(protocol, name) for protocol in PROTOCOLS for name in vars(protocol) if not name.startswith("_")]


@pytest.mark.parametrize(("protocol", "member"), MEMBERS)
def test_every_member_is_forwarded_with_all_its_arguments(protocol: type, member: str) -> None:
    inner = Mock(spec=[name for _, name in MEMBERS])
    result = iter([object(), object()]) if member in ("list", "uploads") else object()
    getattr(inner, member).return_value = result
    signature = inspect.signature(getattr(protocol, member))
    assert inspect.signature(getattr(Wrapped, member)) == signature
    positional, named = [], {}
    for parameter in list(signature.parameters.values())[1:]:
        argument = PendingUpload("object", "id", 1) if member == "abort_upload" else Mock(name=parameter.name)
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            named[parameter.name] = argument
        else:
            positional.append(argument)
    forwarded = getattr(Wrapped(inner), member)(*positional, **named)
    if member in ("list", "uploads"):
        assert len(list(forwarded)) == 2
    elif signature.return_annotation != "None":
        assert forwarded is result
    getattr(inner, member).assert_called_once_with(*positional, **named)


def test_the_core_is_small() -> None:
    assert len([member for protocol, member in MEMBERS if protocol is ChunkStorage]) <= 7


def test_a_storage_without_the_optional_abilities_has_no_uploads_and_no_urls() -> None:
    inner = MemoryStorage()
    assert not isinstance(inner, Uploads | RangeUrls)
    storage = Wrapped(inner)
    assert list(storage.uploads("")) == []
    storage.abort_upload(PendingUpload("object", "id", 1))
    assert storage.range_url("object") is None


def test_limit_bounds_what_is_in_flight() -> None:
    slow = SlowStorage()
    storage = LimitedStorage(slow, max_in_flight=LIMIT)
    with ThreadPoolExecutor(4 * LIMIT) as pool:
        list(pool.map(storage.stat, ["object"] * 4 * LIMIT))
    assert slow.most == LIMIT


def test_limit_gives_slots_back_after_errors() -> None:
    storage = LimitedStorage(MemoryStorage(), max_in_flight=1)
    for _ in range(3):
        with pytest.raises(NotFound):
            storage.stat("missing")


def test_limit_holds_no_slot_between_listed_objects() -> None:
    storage = LimitedStorage(MemoryStorage(), max_in_flight=1)
    for name in ("a", "b"):
        storage.put(name, BufferSource(b""))
    assert [storage.stat(found.name).name for found in storage.list("")] == ["a", "b"]


def test_measure_counts_requests_bytes_errors_and_seconds() -> None:
    metrics, clock = Metrics(), ManualClock()
    flaky = ScriptedStorage(MemoryStorage())
    storage = InstrumentedStorage(flaky, metrics, clock=clock)
    storage.put("secret-name", BufferSource(b"bytes"))
    storage.read_into("secret-name", 1, memoryview(bytearray(3)), progress=lambda _: clock.advance(2))
    flaky.fail("read", Unavailable("busy"), when=When.AFTER)
    with pytest.raises(Unavailable):
        storage.read_into("secret-name", 0, memoryview(bytearray(5)))
    assert [found.name for found in storage.list("")] == ["secret-name"]
    text = metrics.exposition().decode()
    for line in (
        'tierfs_storage_requests_total{tier="cold",verb="read"} 2.0',
        'tierfs_storage_requests_total{tier="cold",verb="list"} 1.0',
        'tierfs_storage_bytes_total{tier="cold",verb="put"} 5.0',
        'tierfs_storage_bytes_total{tier="cold",verb="read"} 3.0',
        'tierfs_storage_errors_total{error="Unavailable",tier="cold",verb="read"} 1.0',
        'tierfs_storage_request_seconds_sum{tier="cold",verb="read"} 2.0',
        'tierfs_storage_request_seconds_count{tier="cold",verb="list"} 1.0',
    ):
        assert line in text.splitlines()
    assert "secret-name" not in text
