"""tierfs doctor: checks of the machine and the store, each with its remedy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.commands import tierfs
from tests.mount.conftest import Mount, append, mount, store
from tierfs.app import store as app
from tierfs.base.words import names
from tierfs.faces.doctor import store as store_checks
from tierfs.faces.doctor.findings import FindingLevel

__all__ = ["mount", "store"]


def checks(*words: object, code: int = 0, store: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return every check by its name."""
    done = tierfs("doctor", "--json", *words, store=store, check=False)
    assert done.code == code, done
    found = done.json
    levels = [one["level"] for one in found["checks"]]
    assert (found["failed"], found["warnings"]) == (levels.count("FAIL"), levels.count("WARN"))
    assert all((one["remedy"] is None) == (one["level"] == "OK") for one in found["checks"])
    return {one["name"]: one for one in found["checks"]}


@pytest.mark.mount
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the kernel's settings of a mount")
def test_the_kernels_settings_of_each_mount(store: app.Store, mount: Mount) -> None:
    point = mount().path
    device = os.stat(point).st_dev
    ahead = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
    waiting = store_checks.CONNECTIONS / str(os.minor(device)) / "max_background"
    assert ahead.read_text() == "1024\n"
    found = checks(store=store.path)
    assert [found[f"{what} of {point}"]["level"] for what in ("read-ahead", "waiting reads")] == ["OK", "OK"]
    ahead.write_text("128\n")
    waiting.write_text("12\n")
    found = checks(store=store.path)
    for what, text, setting in (
        ("read-ahead", "128 KiB; 1024 is fastest", ahead),
        ("waiting reads", "12 reads that wait for the cold tier block all other reads", waiting),
    ):
        check = found[f"{what} of {point}"]
        assert (check["level"], check["found"]) == ("WARN", text)
        assert check["remedy"].endswith(f"echo 1024 > {setting}")


def test_what_mounts_hide_is_reported(store: app.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [finding.text for finding in store_checks.hidden(store)] == []
    monkeypatch.setattr(names, "require_unreserved", lambda name: None)  # as in an older version
    append(store, ".tierfs/s", b"old")
    (finding,) = store_checks.hidden(store)
    assert (finding.level, "mounts hide" in finding.text) == (FindingLevel.WARN, True)
    assert tierfs("cat", ".tierfs/s", store=store.path).out == "old"
