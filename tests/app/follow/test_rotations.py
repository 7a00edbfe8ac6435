"""The names of rotated files: recognised for their log alone, and in the order in which they were written."""

from __future__ import annotations

import pytest

from tierfs.app.follow import rotations

# As logrotate and others write them, the oldest first.
ORDERS = {
    "numbers": ("app.log", ["app.log.10.gz", "app.log.9.gz", "app.log.2.gz", "app.log.1"]),
    "dates": ("app.log", ["app.log-20251231.gz", "app.log-20260101", "app.log-20260102"]),
    "seconds": ("app.log", ["app.log-1764000000.xz", "app.log-1764003600"]),
    "extension": ("app.log", ["app-20260101.log.gz", "app-20260102.log"]),
    "numbers and extension": ("app.log", ["app.2.log.gz", "app.1.log"]),
    "logback": ("app.log", ["app.2026-01-01.0.log.gz", "app.2026-01-01.1.log.gz", "app.2026-01-02.0.log"]),
    "Python": ("app.log", ["app.log.2026-01-01_09-59", "app.log.2026-01-01_10-00"]),
    "kubelet": ("0.log", ["0.log.20260101-101112.gz", "0.log.20260101-111112"]),
    "old": ("messages", ["messages.old"]),
    "numbers of a log with one": ("web-2.log", ["web-2.log.2", "web-2.log.1"]),
    "a log that was compressed": ("app.log", ["app.log-20260101", "app.log.gz"]),
}
OTHERS = ["app.log.d", "app.login", "app2.log", "app.log~", "app.log.1.swp", "xapp.log.1", "other.log.1"]


def logs_of(name: str) -> set[str]:
    """The logs that a file of this name may be an earlier file of."""
    return {log for log, _ in rotations.logs_of(name)}


@pytest.mark.parametrize("kind", ORDERS)
def test_rotated_files_are_sorted_by_age(kind: str) -> None:
    log, names = ORDERS[kind]
    assert rotations.earlier_files([*reversed(names), *OTHERS])[log] == names
    assert all(log in logs_of(name) for name in names)


@pytest.mark.parametrize("name", OTHERS)
def test_other_files_are_logs_themselves(name: str) -> None:
    assert "app.log" not in logs_of(name)


def test_a_name_may_be_that_of_a_rotated_file_of_some_logs_alone() -> None:
    assert "localhost.log" not in logs_of("catalina.2026-01-01.log")
    assert "catalina.log" in logs_of("catalina.2026-01-01.log")


def test_a_file_counts_once_while_it_is_compressed() -> None:
    names = ["app.log.2.gz", "app.log.1", "app.log.1.gz"]
    assert rotations.earlier_files(names)["app.log"] == ["app.log.2.gz", "app.log.1"]
    assert "app.log" not in rotations.earlier_files(["app.log", "app.log.gz"])
