"""tierfs doctor: checks of the machine and the store, each with its remedy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.commands import tierfs
from tests.mount.conftest import Mount, mount, store
from tierfs.app import store as app
from tierfs.doctor import store as store_checks
from tierfs.doctor.findings import DoctorFinding, FindingLevel
from tierfs.system.mounts import mounts

__all__ = ["mount", "store"]

MACHINE = ["fuse device", "fusermount3", "user_allow_other", "kernel", "open files", "memory"]


def checks(*words: object, code: int = 0, store: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return every check by its name."""
    done = tierfs("doctor", "--json", *words, store=store, check=False)
    assert done.code == code, done
    found = done.json
    levels = [one["level"] for one in found["checks"]]
    assert (found["failed"], found["warnings"]) == (levels.count("FAIL"), levels.count("WARN"))
    assert all((one["remedy"] is None) == (one["level"] == "OK") for one in found["checks"])
    return {one["name"]: one for one in found["checks"]}


def test_without_a_store_only_the_machine_is_checked() -> None:
    assert list(checks()) == MACHINE
    done = tierfs("doctor", "-v", check=False)
    assert "only the machine is checked" in done.err
    assert [line.split()[0] for line in done.out.splitlines()] == ["OK"] * len(MACHINE)


def test_what_is_not_ok_is_printed_and_the_rest_counted_unless_all_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "store"
    assert tierfs("doctor", check=False).out == f"OK    {len(MACHINE)} checks: tierfs doctor -v lists them\n"
    tierfs("-q", "init", store=path)
    (path / "cold").rename(tmp_path / "away")
    found = checks(store=path, code=1)
    levels = [check["level"] for check in found.values()]
    failed, warned, fine = (levels.count(level) for level in ("FAIL", "WARN", "OK"))
    assert failed, "the cold tier is away"
    short = tierfs("doctor", store=path, check=False)
    assert short.code == 1
    assert leading(short.out) == ["FAIL"] * failed + ["WARN"] * warned + ["OK"]
    assert short.out.endswith(f"\nOK    {fine} checks: tierfs doctor -v lists them\n")
    every = tierfs("doctor", "-v", store=path, check=False)
    assert leading(every.out) == ["FAIL"] * failed + ["WARN"] * warned + ["OK"] * fine
    for check in found.values():
        assert check["remedy"] is None or check["remedy"] in short.out


def leading(text: str) -> list[str]:
    """The first words of all lines but those of remedies."""
    return [line.split()[0] for line in text.splitlines() if not line.startswith(" ")]


def test_a_fresh_store(tmp_path: Path) -> None:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    found = checks(store=path)
    assert found["store"]["found"].startswith(str(path))
    assert found["cold tier's place"]["level"] == "WARN"
    expected = ["background work", "holder", "disk", "not offloaded", "link(2)"]
    assert found["RWF_NOWAIT"]["level"] in ("OK", "WARN")  # a tmpfs has none
    assert [found[name]["level"] for name in expected] == ["OK"] * len(expected)
    assert found["clock since last commit"]["found"] == "0 s behind the newest commit"
    assert sorted(os.listdir(path)) == ["ballast", "chunks", "cold", "locks", "log", "metadata", "store.toml"]


@pytest.mark.mount
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the kernel's read-ahead")
def test_read_ahead_of_each_mount(store: app.Store, mount: Mount) -> None:
    point = mount().path
    name = f"read-ahead of {point}"
    found = store_checks.read_ahead(next(one for one in mounts() if one.mountpoint == point), store_checks.BDI)
    device = os.stat(point).st_dev
    setting = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
    assert found == DoctorFinding(name, FindingLevel.OK, "1024 KiB")
    setting.write_text("128\n")
    one = checks(store=store.path)[name]
    assert (one["level"], one["found"]) == ("WARN", "128 KiB; 1024 is fastest")
    assert one["remedy"] == f"as root: echo 1024 > {setting}"


@pytest.mark.mount
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount the control filesystem")
def test_waiting_reads_of_each_mount(store: app.Store, mount: Mount) -> None:
    point = mount().path
    name = f"waiting reads of {point}"
    setting = store_checks.CONNECTIONS / str(os.minor(os.stat(point).st_dev)) / "max_background"
    assert checks(store=store.path)[name]["level"] == "OK"
    setting.write_text("12\n")
    one = checks(store=store.path)[name]
    assert (one["level"], one["found"]) == ("WARN", "12 that wait for an absent cold tier hold up all others")
    assert one["remedy"].endswith(f"echo 1024 > {setting}")
