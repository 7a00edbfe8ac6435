"""A place under another name is no other place: it is refused before anything is copied, and nothing of it is lost."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.app.moving.test_move import filled, require_clean
from tests.commands import new_store, tierfs
from tests.conftest import Bucket
from tierfs.engine.chunkstore import probe
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return filled(new_store(tmp_path))


def link(at: Path, cold: Path) -> Path:
    at.symlink_to(cold)
    return at


def linked_above(at: Path, cold: Path) -> Path:
    at.symlink_to(cold.parent)
    return at / cold.name


def bind(at: Path, cold: Path) -> Path:
    at.mkdir()
    subprocess.run(["mount", "--bind", cold, at], check=True)
    return at


def below_a_bind(at: Path, cold: Path) -> Path:
    return made(bind(at, cold) / "deeper")


def bound_below(at: Path, cold: Path) -> Path:
    return bind(at, made(cold / "deeper"))


def inside(at: Path, cold: Path) -> Path:
    return made(cold / "deeper")


def above(at: Path, cold: Path) -> Path:
    return cold.parent


def dotted(at: Path, cold: Path) -> Path:
    return cold / ".." / cold.name


def made(directory: Path) -> Path:
    directory.mkdir()
    return directory


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "other"
    yield path
    if not path.is_symlink():  # a bind mount of the same file system looks like a directory
        subprocess.run(["umount", "-l", path], check=False, capture_output=True)


def tree(directory: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}


SAME = "under another address"
NESTED = "is inside"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (link, SAME),
        (linked_above, SAME),
        (bind, SAME),
        (dotted, SAME),
        (inside, NESTED),
        (below_a_bind, NESTED),
        (bound_below, NESTED),
        (above, "below it"),
    ],
)
def test_a_directory_that_is_no_other_place_is_refused(
    store: Path, tmp_path: Path, at: Path, name: Callable[[Path, Path], Path], why: str
) -> None:
    cold = tmp_path / "cold"
    if name in (bind, below_a_bind, bound_below) and os.geteuid():
        pytest.skip("only root mounts")
    to, before = name(at, cold), tree(cold)
    done = tierfs("move", "--to", to, store=store, check=False)
    assert (done.code in (2, 5), why in done.err) == (True, True), done
    assert tierfs("config", "--json", store=store).json["cold.url"]["value"] == f"file:{cold}"
    assert tree(cold) == before
    require_clean(store)


def test_a_directory_that_is_missing_is_not_made(store: Path, tmp_path: Path) -> None:
    """It may be that of a disk that is not mounted."""
    done = tierfs("move", "--to", tmp_path / "nas", store=store, check=False)
    assert (done.code, "create the directory, or mount its disk" in done.err) == (3, True), done


@pytest.mark.parametrize("ending", ["", "/"])
def test_a_server_under_another_name_is_the_same_one(tmp_path: Path, moto_bucket: Bucket, ending: str) -> None:
    (endpoint, bucket), store = moto_bucket, tmp_path / "s"
    url = endpoint.endpoint_url
    other = (url if ending else url.replace("127.0.0.1", "localhost")) + ending
    assert other != url
    tierfs("-q", "init", "--bucket", f"s3://{bucket}/a", "--endpoint-url", url, store=store)
    filled(store)
    for prefix, why in (("a", SAME), ("a/b", NESTED), ("", "below it")):
        to = f"s3://{bucket}/{prefix}".rstrip("/")
        done = tierfs("move", "--to", to, "--endpoint-url", other, store=store, check=False)
        assert (done.code in (2, 5), why in done.err) == (True, True), done
    require_clean(store)


def test_a_trace_that_was_left_by_another_move_proves_nothing() -> None:
    first, second = MemoryStorage(), MemoryStorage()
    with probe.trace(first) as one, probe.trace(second) as two:
        assert (one.is_at(first), one.is_at(second), two.is_at(first), two.is_at(second)) == (True, False, False, True)
        name = next(first.list("")).name
        first.put(f"deeper/{name}", BufferSource(one.token))
        second.put(f"deeper/{name}", BufferSource(one.token[1:]))
        assert (one.is_below(first, f"deeper/{name}", ()), one.is_below(second, f"deeper/{name}", ())) == (True, False)
    assert not one.is_at(first)
