"""The wrapper that retries: what is repeated, what is not, and how an ambiguous put is resolved."""

from __future__ import annotations

import logging

import pytest

from tests.doubles.scripted_storage import ScriptedStorage, When
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import BufferSource, ObjectPiece
from tierfs.chunkstore.retry import RetryingStorage
from tierfs.errors import (
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
from tierfs.metrics import Metrics
from tierfs.types import MIB

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
        self.storage = RetryingStorage(
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


def test_succeeds_after_failures(bench: Bench, expected_warnings: list[str]) -> None:
    expected_warnings.append("put object failed, try 3: busy")
    bench.flaky.fail("put", Unavailable("busy"), on=range(1, ATTEMPTS))
    bench.storage.put("object", BufferSource(b"bytes"))
    assert bench.flaky.calls["put"] == ATTEMPTS
    assert b'tierfs_storage_retries_total{verb="put"} 3.0' in bench.metrics.exposition()


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
    "error", [NotFound, AlreadyExists, PermissionDenied, StorageFull, DataLoss, InvalidRequest, Closed]
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


def retrying(inner: Replaced) -> RetryingStorage:
    return RetryingStorage(inner, attempts=ATTEMPTS, base_delay_s=0, max_delay_s=0)


@pytest.mark.parametrize("verb", ["put", "read", "stat", "delete", "list"])
@pytest.mark.parametrize("renewals", [(), (False,), (True,)])
def test_a_refused_call_is_repeated_once_if_the_credentials_were_replaced(
    verb: str, renewals: tuple[bool, ...]
) -> None:
    inner = Replaced(MemoryStorage())
    if verb != "put":
        inner.put("object", BufferSource(b"bytes"))
    inner.renewals = renewals
    inner.fail(verb, PermissionDenied("no"), on=range(inner.calls[verb] + 1, inner.calls[verb] + 2))
    if renewals == (True,):
        call(retrying(inner), verb)
    else:
        with pytest.raises(PermissionDenied):
            call(retrying(inner), verb)
    assert inner.looks == 1


def test_a_call_that_is_refused_again_fails() -> None:
    inner = Replaced(MemoryStorage())
    inner.renewals = (True, True)
    inner.fail("stat", PermissionDenied("no"), on=range(1, 3))
    with pytest.raises(PermissionDenied):
        retrying(inner).stat("object")
    assert (inner.calls["stat"], inner.looks) == (2, 1)


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


def call(storage: RetryingStorage, verb: str) -> None:
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


def test_logging_escalates(bench: Bench, caplog: pytest.LogCaptureFixture, expected_warnings: list[str]) -> None:
    expected_warnings.append("delete object failed, try 3: busy")
    caplog.set_level(logging.DEBUG, "tierfs")
    bench.flaky.fail("delete", Unavailable("busy"), on=range(1, ATTEMPTS))
    bench.storage.delete("object")
    assert [record.levelno for record in caplog.records] == [logging.DEBUG, logging.INFO, logging.WARNING]


def test_a_place_that_is_not_mounted_is_not_asked_again(bench: Bench) -> None:
    bench.flaky.fail("stat", WrongColdTier("nothing is mounted"), on=range(1, ATTEMPTS))
    with pytest.raises(WrongColdTier):
        bench.storage.stat("object")
    assert bench.flaky.calls["stat"] == 1


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_put_whose_answer_was_lost_is_ours(bench: Bench, when: When) -> None:
    bench.flaky.fail("put", Unavailable("reset"), when=when)
    stored = bench.storage.put("object", BufferSource(DATA), metadata=OWN)
    assert stored == bench.storage.stat("object")
    assert stored.length_bytes == len(DATA)


@pytest.mark.parametrize("metadata", [{"attempt": "other"}, {}])
@pytest.mark.parametrize("length_bytes", [1, len(DATA)])
def test_put_that_somebody_else_won_is_not_ours(bench: Bench, metadata: dict[str, str], length_bytes: int) -> None:
    bench.flaky.inner.put("object", BufferSource(DATA[:length_bytes]), metadata=metadata)
    bench.flaky.fail("put", Unavailable("reset"))
    with pytest.raises(AlreadyExists):
        bench.storage.put("object", BufferSource(DATA), metadata=OWN)


def test_put_without_an_attempt_id_is_never_assumed_ours(bench: Bench) -> None:
    bench.flaky.fail("put", Unavailable("reset"), when=When.AFTER)
    with pytest.raises(AlreadyExists):
        bench.storage.put("object", BufferSource(DATA))


def test_first_try_that_finds_the_name_taken_is_not_resolved(bench: Bench) -> None:
    bench.flaky.inner.put("object", BufferSource(DATA), metadata=OWN)
    with pytest.raises(AlreadyExists):
        bench.storage.put("object", BufferSource(DATA), metadata=OWN)


def test_unavailable_stat_while_resolving_is_retried(bench: Bench) -> None:
    bench.flaky.fail("put", Unavailable("reset"), when=When.AFTER)
    bench.flaky.fail("stat", Unavailable("reset"))
    assert bench.storage.put("object", BufferSource(DATA), metadata=OWN).length_bytes == len(DATA)


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_compose_whose_answer_was_lost_is_not_done_twice(bench: Bench, when: When) -> None:
    source = bench.storage.put("source", BufferSource(DATA))
    bench.flaky.fail("compose", Unavailable("reset"), when=when)
    made = bench.storage.compose("object", [ObjectPiece("source", 0, len(DATA), source.etag)], metadata=OWN)
    assert (made.etag, made.length_bytes) == (bench.storage.stat("object").etag, len(DATA))
    assert bench.flaky.calls["compose"] == (2 if when is When.BEFORE else 1)


@pytest.mark.parametrize("metadata", [{"attempt": "other"}, {}])
def test_compose_that_somebody_else_won_is_not_ours(bench: Bench, metadata: dict[str, str]) -> None:
    source = bench.flaky.inner.put("source", BufferSource(DATA))
    bench.flaky.inner.put("object", BufferSource(DATA), metadata=metadata)
    bench.flaky.fail("compose", Unavailable("reset"))
    with pytest.raises(AlreadyExists):
        bench.storage.compose("object", [ObjectPiece("source", 0, len(DATA), source.etag)], metadata=OWN)


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


def test_list_that_keeps_failing_raises(bench: Bench, expected_warnings: list[str]) -> None:
    expected_warnings.append("list .* failed")
    bench.flaky.fail("list", Unavailable("reset"), on=range(1, ATTEMPTS + 1))
    with pytest.raises(Unavailable):
        list(bench.storage.list(""))


def test_reads_that_are_repeated_are_no_warnings(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Readers wait on, and tell once that they do."""
    caplog.set_level(logging.DEBUG, "tierfs")
    bench.flaky.fail("read", Unavailable("busy"), on=range(1, ATTEMPTS + 1))
    with pytest.raises(Unavailable):
        call(bench.storage, "read")
    assert [record.levelno for record in caplog.records] == [logging.DEBUG, logging.INFO, logging.INFO]
