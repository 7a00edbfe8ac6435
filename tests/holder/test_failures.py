"""Failures are remembered with their pauses, also while many threads report them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.stores import TestStore, open_test_store
from tierfs.config import BackgroundSettings
from tierfs.errors import Unavailable
from tierfs.holder.failures import Failures
from tierfs.metadata.records import FailureRecord
from tierfs.metadata.tables import FAILURES

AWAY = Unavailable("the server does not answer")
MANY = 1000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def noted(store: TestStore, expected_warnings: list[str]) -> Failures:
    expected_warnings.append("does not answer")
    return Failures(store.metadata, BackgroundSettings())


def rows(store: TestStore) -> set[str]:
    with store.metadata.read() as txn:
        return {row.what for _, row in txn.scan(FAILURES)}


def test_the_end_of_an_outage_is_told_by_many_threads_at_once(store: TestStore, noted: Failures) -> None:
    names = [f"offload {number} 0" for number in range(MANY)]
    for name in names:
        noted.failed(name, AWAY)
    with ThreadPoolExecutor(4) as pool:
        passing = [pool.submit(noted.passed, name) for name in names]
        for number in range(50):
            noted.failed(f"look {number}", AWAY)
            noted.retain("look ", lambda _: False)
        for one in passing:
            one.result()
    assert rows(store) == set()
    assert not any(noted.has(name) for name in names)


def test_the_first_that_works_ends_the_pauses_of_all_before_it(store: TestStore, noted: Failures) -> None:
    noted.failed("a", AWAY)
    noted.failed("b", AWAY)
    assert not noted.may_try("a")
    noted.passed("b")
    assert noted.may_try("a")
    noted.failed("a", AWAY)
    assert not noted.may_try("a")
    assert not Failures(store.metadata, BackgroundSettings()).may_try("a")


def test_pauses_of_the_holder_before_end_too(store: TestStore, noted: Failures) -> None:
    noted.failed("a", AWAY)
    noted.failed("b", AWAY)
    again = Failures(store.metadata, BackgroundSettings())
    again.passed("b")
    assert again.may_try("a")


def test_a_failure_that_is_written_late_does_not_outlive_its_end(
    store: TestStore, noted: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work passes in another thread before the row of its failure is on the disk."""
    write = Failures._write

    def late(self: Failures, row: FailureRecord) -> None:
        self.passed(row.what)
        write(self, row)

    monkeypatch.setattr(Failures, "_write", late)
    noted.failed("offload 1 0", AWAY)
    assert not noted.has("offload 1 0")
    assert rows(store) == set()


def test_an_end_that_is_written_late_does_not_remove_the_next_failure(
    store: TestStore, noted: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = Failures._remove

    def late(self: Failures, what: str) -> None:
        self.failed(what, AWAY)
        remove(self, what)

    noted.failed("offload 1 0", AWAY)
    monkeypatch.setattr(Failures, "_remove", late)
    noted.passed("offload 1 0")
    assert noted.has("offload 1 0")
    assert rows(store) == {"offload 1 0"}
