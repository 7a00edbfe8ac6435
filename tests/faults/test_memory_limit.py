"""A limit of address space, as `ulimit -v` sets it: every command names it, and none calls the metadata damaged."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import tierfs
from tierfs.base.words.errors import Unavailable

LIMIT_BYTES = 8 << 30
"""Enough for Python and its libraries, and far less than LMDB's map."""


def limited(store: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does who has set a limit."""
    environment = {**os.environ, "TIERFS_STORE": str(store)}
    return subprocess.run(
        [sys.executable, "-m", "tierfs", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES)),
        check=False,
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    tierfs("-q", "init", "--cold", "none", store=tmp_path / "store")
    return tmp_path / "store"


@pytest.mark.parametrize(
    "words", [("ls", "/"), ("status",), ("check",), ("check", "--repair"), ("append", "s")], ids=" ".join
)
def test_a_limit_of_address_space_is_named_and_is_no_damage(store: Path, words: tuple[str, ...]) -> None:
    before = {path.name for path in store.rglob("*")}
    done = limited(store, *words)
    assert done.returncode == Unavailable.exit_code, done
    assert "ulimit -v" in done.stderr
    said = (done.stdout + done.stderr).lower()
    assert all(word not in said for word in ("damage", "dataloss", "recover", "internal error", "traceback"))
    assert {path.name for path in store.rglob("*")} == before
    tierfs("ls", "/", store=store)


def test_a_store_is_not_half_created_under_a_limit(tmp_path: Path) -> None:
    done = limited(tmp_path / "new", "init", "--cold", "none")
    assert (done.returncode, "ulimit -v" in done.stderr) == (Unavailable.exit_code, True)
    assert list(tmp_path.rglob("*")) == []
