"""Wrappers: what limit, metrics and retries add; how an ambiguous put is resolved."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.doubles.scripted_storage import ScriptedStorage, When
from tests.mount.waiting import eventually
from tierfs.base.system.prometheus import Metrics
from tierfs.base.words.errors import (
    AlreadyExists,
    Closed,
    DataLoss,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    StorageFull,
    Unavailable,
    WrongColdTier,
)
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource, ObjectPiece, PendingUpload, RangeUrls, StoredObject, Uploads
from tierfs.engine.chunkstore.resilient import ResilientStorage
from tierfs.engine.chunkstore.wrappers import Wrapped

LIMIT = 3


class HeldStorage(MemoryStorage):
    """Holds every stat until it is released, and counts those inside."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.released = threading.Event()
        self.inside = 0

    def stat(self, name: str) -> StoredObject:
        with self.lock:
            self.inside += 1
        assert self.released.wait(60)
        return StoredObject(name, 0, "etag")


def test_a_storage_without_the_optional_abilities_has_no_uploads_and_no_urls() -> None:
    inner = MemoryStorage()
    assert not isinstance(inner, Uploads | RangeUrls)
    storage = Wrapped(inner)
    assert list(storage.uploads("")) == []
    storage.abort_upload(PendingUpload("object", "id", 1))
    assert storage.range_url("object") is None


def test_limit_bounds_what_is_in_flight() -> None:
    held = HeldStorage()
    storage = ResilientStorage(held, max_in_flight=LIMIT)
    waiting = storage._slots._cond._waiters  # type: ignore[union-attr]
    with ThreadPoolExecutor(LIMIT + 1) as pool:
        stats = [pool.submit(storage.stat, "object") for _ in range(LIMIT + 1)]
        assert eventually(lambda: held.inside + len(waiting) == LIMIT + 1)
        inside = held.inside
        held.released.set()
        assert [stat.result().length_bytes for stat in stats] == [0] * (LIMIT + 1)
    assert (inside, held.inside) == (LIMIT, LIMIT + 1)


def test_measure_counts_requests_bytes_errors_and_seconds() -> None:
    metrics, clock = Metrics(), ManualClock()
    flaky = ScriptedStorage(MemoryStorage())
    storage = ResilientStorage(flaky, metrics=metrics, clock=clock)
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


ATTEMPTS = 4
BASE_S, MAX_S = 0.1, 0.25
DATA = bytes(range(256)) * (3 * MIB // 256)
OWN = {"attempt": "own"}


class Bench:
    """A retrying storage over a flaky one; pauses are recorded instead of slept."""

    def __init__(self) -> None:
        self.flaky = ScriptedStorage(MemoryStorage())
        self.pauses: list[float] = []
        self.metrics = Metrics()
        self.storage = ResilientStorage(
            self.flaky,
            attempts=ATTEMPTS,
            base_delay_s=BASE_S,
            max_delay_s=MAX_S,
            sleep=self.pauses.append,
            metrics=self.metrics,
        )


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_pauses_have_full_jitter_under_a_growing_bound(bench: Bench, expected_warnings: list[str]) -> None:
    expected_warnings.append("stat object failed")
    seen: list[list[float]] = [[] for _ in range(ATTEMPTS - 1)]
    for _ in range(200):
        bench.pauses.clear()
        bench.flaky.fail("stat", Unavailable("busy"), on=range(1, ATTEMPTS + 1))
        with pytest.raises(Unavailable, match="busy"):
            bench.storage.stat("object")
        for pauses, pause in zip(seen, bench.pauses, strict=True):
            pauses.append(pause)
    for pauses, bound in zip(seen, [BASE_S, 2 * BASE_S, MAX_S], strict=True):
        assert 0 <= min(pauses) < bound / 4
        assert bound * 3 / 4 < max(pauses) <= bound


@pytest.mark.parametrize(
    "error",
    [NotFound, AlreadyExists, PermissionDenied, StorageFull, DataLoss, InvalidRequest, Closed, WrongColdTier],
)
@pytest.mark.parametrize("verb", ["put", "compose", "read", "stat", "delete", "list"])
def test_other_errors_pass_at_once(bench: Bench, verb: str, error: type[Exception]) -> None:
    bench.flaky.fail(verb, error("no"))
    with pytest.raises(error, match="no"):
        call(bench.storage, verb)
    assert bench.flaky.calls[verb] == 1
    assert bench.pauses == []


class Replaced(ScriptedStorage):
    """A storage whose credentials may be replaced: `renewals` are the answers of its next looks."""

    renewals: tuple[bool, ...] = ()
    looks = 0

    def renew_credentials(self) -> bool:
        self.looks += 1
        answer, *rest = (*self.renewals, False)
        self.renewals = tuple(rest)
        return answer


def retrying(inner: Replaced) -> ResilientStorage:
    return ResilientStorage(inner, attempts=ATTEMPTS)


@pytest.mark.parametrize("verb", ["put", "read", "list"])
@pytest.mark.parametrize(("renewals", "refusals"), [((), 1), ((False,), 1), ((True,), 1), ((True, True), 2)])
def test_a_refused_call_is_repeated_once_if_the_credentials_were_replaced(
    verb: str, renewals: tuple[bool, ...], refusals: int
) -> None:
    inner = Replaced(MemoryStorage())
    if verb != "put":
        inner.put("object", BufferSource(b"bytes"))
    inner.renewals = renewals
    inner.fail(verb, PermissionDenied("no"), on=range(1, refusals + 1))
    if renewals == (True,):
        call(retrying(inner), verb)
    else:
        with pytest.raises(PermissionDenied):
            call(retrying(inner), verb)
    assert inner.looks == 1


@pytest.mark.parametrize("refused", [When.BEFORE, When.AFTER])
def test_a_listing_that_is_refused_goes_on_whole(refused: When) -> None:
    """A generator that raised is over: asking it again would look like the end of the bucket."""
    inner = Replaced(MemoryStorage())
    names = [f"n{number}" for number in range(5)]
    for name in names:
        inner.put(name, BufferSource(b"x"))
    inner.renewals = (True,)
    inner.fail("list", PermissionDenied("no"), when=refused)
    assert [found.name for found in retrying(inner).list("")] == names


def call(storage: ResilientStorage, verb: str) -> None:
    if verb == "put":
        storage.put("object", BufferSource(b"bytes"))
    elif verb == "compose":
        storage.compose("object", [ObjectPiece("source", 0, 1, "etag")])
    elif verb == "read":
        storage.read_into("object", 0, memoryview(bytearray(1)))
    elif verb == "list":
        list(storage.list(""))
    else:
        getattr(storage, verb)("object")


@pytest.mark.parametrize(("verb", "third"), [("put", logging.WARNING), ("read", logging.INFO)])
def test_a_call_that_fails_is_repeated_and_told_more_and_more_loudly(
    bench: Bench, caplog: pytest.LogCaptureFixture, expected_warnings: list[str], verb: str, third: int
) -> None:
    """Readers wait on, and tell once that they do."""
    expected_warnings.append("put object failed, attempt 3 of")
    if verb == "read":
        bench.storage.put("object", BufferSource(b"bytes"))
    caplog.set_level(logging.DEBUG, "tierfs")
    bench.flaky.fail(verb, Unavailable("busy"), on=range(1, ATTEMPTS))
    call(bench.storage, verb)
    assert bench.flaky.calls[verb] == ATTEMPTS
    assert [record.levelno for record in caplog.records] == [logging.DEBUG, logging.INFO, third]
    assert f'tierfs_storage_retries_total{{verb="{verb}"}} 3.0' in bench.metrics.exposition().decode()


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_put_whose_answer_was_lost_is_ours(bench: Bench, when: When) -> None:
    bench.flaky.fail("put", Unavailable("reset"), when=when)
    stored = bench.storage.put("object", BufferSource(DATA), metadata=OWN)
    assert stored == bench.storage.stat("object")
    assert stored.length_bytes == len(DATA)


@pytest.mark.parametrize("metadata", [{"attempt": "other"}, {}])
@pytest.mark.parametrize("length_bytes", [1, len(DATA)])
def test_put_that_somebody_else_won_is_not_ours(bench: Bench, metadata: dict[str, str], length_bytes: int) -> None:
    source = bench.flaky.inner.put("source", BufferSource(DATA))
    bench.flaky.inner.put("object", BufferSource(DATA[:length_bytes]), metadata=metadata)
    for verb in ("put", "compose"):
        bench.flaky.fail(verb, Unavailable("reset"))
    with pytest.raises(AlreadyExists):
        bench.storage.put("object", BufferSource(DATA), metadata=OWN)
    with pytest.raises(AlreadyExists):
        bench.storage.compose("object", [ObjectPiece("source", 0, len(DATA), source.etag)], metadata=OWN)


def test_put_is_assumed_ours_only_by_its_attempt_and_after_a_failure(bench: Bench) -> None:
    bench.flaky.fail("put", Unavailable("reset"), when=When.AFTER)
    with pytest.raises(AlreadyExists):
        bench.storage.put("without", BufferSource(DATA))
    bench.flaky.inner.put("object", BufferSource(DATA), metadata=OWN)
    with pytest.raises(AlreadyExists):
        bench.storage.put("object", BufferSource(DATA), metadata=OWN)
    bench.flaky.fail("put", Unavailable("reset"), when=When.AFTER)
    bench.flaky.fail("stat", Unavailable("reset"))
    assert bench.storage.put("other", BufferSource(DATA), metadata=OWN).length_bytes == len(DATA)


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_compose_whose_answer_was_lost_is_not_done_twice(bench: Bench, when: When) -> None:
    source = bench.storage.put("source", BufferSource(DATA))
    bench.flaky.fail("compose", Unavailable("reset"), when=when)
    made = bench.storage.compose("object", [ObjectPiece("source", 0, len(DATA), source.etag)], metadata=OWN)
    assert (made.etag, made.length_bytes) == (bench.storage.stat("object").etag, len(DATA))
    assert bench.flaky.calls["compose"] == (2 if when is When.BEFORE else 1)


@pytest.mark.parametrize("pinned", [True, False])
def test_read_that_breaks_halfway(bench: Bench, pinned: bool) -> None:
    etag = bench.storage.put("object", BufferSource(DATA)).etag
    bench.flaky.fail("read", Unavailable("reset"), when=When.HALFWAY)
    buffer, seen = bytearray(len(DATA)), []
    bench.storage.read_into("object", 0, memoryview(buffer), if_match=etag if pinned else None, progress=seen.append)
    assert buffer == DATA
    assert seen == [MIB, 2 * MIB, 3 * MIB]


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_list_goes_on_after_the_last_name(bench: Bench, when: When) -> None:
    for name in ("a", "b", "c"):
        bench.storage.put(name, BufferSource(b""))
    bench.flaky.fail("list", Unavailable("reset"), on=range(1, 3), when=when)
    assert [found.name for found in bench.storage.list("")] == ["a", "b", "c"]
