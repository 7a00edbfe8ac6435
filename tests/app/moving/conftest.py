"""Places of a move that follow a script, and a store whose bytes are cold only, whose place then changes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import verbs
from tests.commands import new_store, tierfs
from tests.doubles.scripted_storage import ScriptedStorage
from tests.mount.conftest import append
from tierfs.app.store import open_store

SIZE = 3 << 20
NAMES = ("first", "second", "third")


@pytest.fixture
def cold() -> ScriptedStorage:
    """Return the place before, which follows a script."""
    return ScriptedStorage()


@pytest.fixture
def target() -> ScriptedStorage:
    """Return the place of a move, which follows a script too."""
    return ScriptedStorage()


def text_of(name: str) -> bytes:
    return (name.encode() + b"\n") * (SIZE // (len(name) + 1))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store with three segments that are cold only."""
    path = new_store(tmp_path)
    (tmp_path / "nas").mkdir()
    with open_store(path) as opened:
        for name in NAMES:
            append(opened, name, text_of(name))
            verbs.offload(opened)
        verbs.evict(opened)
    return path


def move(store: Path, to: Path) -> None:
    tierfs("-q", "move", "--to", to, store=store)


def copy(store: Path, to: Path) -> None:
    shutil.rmtree(to)
    shutil.copytree(to.parent / "cold", to)
    tierfs("-q", "config", f"cold.url={to}", store=store)


Change = Callable[[Path], None]


@pytest.fixture(
    params=[(move, "empty"), (move, "missing"), (copy, "other bytes")], ids=lambda how: f"{how[0].__name__}-{how[1]}"
)
def change(request: pytest.FixtureRequest, tmp_path: Path) -> Change:
    """Give the store another place, and spoil the one before."""
    by, then = request.param

    def changed(store: Path) -> None:
        by(store, tmp_path / "nas")
        files = [path for path in (tmp_path / "cold").rglob("*") if path.is_file()]
        for file in files:
            if then == "other bytes":
                status = file.stat()
                file.chmod(0o600)
                file.write_bytes(bytes(status.st_size))
                os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
            else:
                file.unlink()
        if then == "missing":
            shutil.rmtree(tmp_path / "cold")

    return changed


def require_unaccused(store: Path) -> None:
    with open_store(store) as opened, opened.metadata.read() as txn:
        assert txn.sums is not None
        assert (txn.sums.suspect_cold_bytes, txn.store.journal.wrong_place) == (0, "")
    for name in NAMES:
        assert tierfs("cat", name, store=store).out.encode() == text_of(name)
