"""tierfs move: the cold tier is copied, proved, and used at its new place; by commands, mounts and a real server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.commands import new_store, tierfs
from tests.conftest import Bucket
from tests.reality.kills import CLASS

NAMES = ("a", "d/b", "d/c")


def text_of(name: str) -> bytes:
    return name.encode() * 5000


def filled(store: Path) -> Path:
    for name in NAMES:
        tierfs("-q", "append", name, store=store, stdin=text_of(name))
    tierfs("-q", "offload", store=store)
    tierfs("-q", "evict", store=store)
    return store


@pytest.fixture(params=["off", "zstd"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = new_store(tmp_path)
    tierfs("-q", "config", "/", f"compression={request.param}", store=path)
    return filled(path)


def require_clean(store: Path) -> None:
    for name in NAMES:
        assert tierfs("cat", name, store=store).out.encode() == text_of(name)
    assert tierfs("check", "--read", store=store).out.endswith(("clean\n", "0 findings left, 0 repaired, 1 note\n"))


def pack_in(directory: Path) -> Path:
    return next(path for path in sorted((directory / "packs").rglob("*")) if path.is_file())


@pytest.mark.parametrize("spoil", ["flip", "cut", "empty", "end"])
@pytest.mark.parametrize("where", ["cold", "nas"])
def test_of_two_copies_the_good_one_stays(store: Path, tmp_path: Path, spoil: str, where: str) -> None:
    """Bytes that are wrong at the new place are copied again, and damaged ones replace no good ones."""
    shutil.copytree(tmp_path / "cold", tmp_path / "nas")
    SPOIL[spoil](pack_in(tmp_path / where))
    assert tierfs("--json", "move", "--to", tmp_path / "nas", store=store).json["damaged"] == []
    require_clean(store)


def test_two_copies_that_are_damaged_in_other_places_stay_where_they_are(store: Path, tmp_path: Path) -> None:
    tierfs("-q", "append", "large", store=store, stdin=os.urandom(300_000))
    tierfs("-q", "offload", store=store)
    nas = tmp_path / "nas"
    shutil.copytree(tmp_path / "cold", nas)
    name = max((path for path in nas.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    flip(name, at=0)
    flip(tmp_path / "cold" / name.relative_to(nas), at=-40_000)
    done = tierfs("move", "--to", nas, store=store, check=False)
    assert (done.code, "differs between directory" in done.err) == (74, True), done
    assert tierfs("config", "--json", store=store).json["cold.url"]["value"] == f"file:{tmp_path / 'cold'}"


def test_a_bad_end_of_an_object_takes_no_bad_bytes_over_good_ones(store: Path, tmp_path: Path) -> None:
    """The end is that of a pack, which only a recovery reads."""
    nas = tmp_path / "nas"
    shutil.copytree(tmp_path / "cold", nas)
    pack, there = pack_in(tmp_path / "cold"), pack_in(nas)
    flip(pack, at=20)
    flip(there, at=-1)
    before = there.read_bytes()
    done = tierfs("move", "--to", nas, store=store, check=False)
    assert (done.code, "differs between directory" in done.err) == (74, True), done
    assert there.read_bytes() == before


def test_an_end_that_is_bad_in_both_places_is_told(store: Path, tmp_path: Path) -> None:
    pack = pack_in(tmp_path / "cold")
    flip(pack, at=-1)
    (tmp_path / "nas").mkdir()
    done = tierfs("--json", "move", "--to", tmp_path / "nas", store=store, check=False)
    assert (done.code, done.json["damaged"]) == (0, [str(pack.relative_to(tmp_path / "cold"))])
    assert "REPAIRED  tables-damaged" in tierfs("check", "--read", "--repair", store=store, check=False).out
    require_clean(store)


def test_an_object_of_the_journal_that_is_another_there_is_refused(store: Path, tmp_path: Path) -> None:
    nas = tmp_path / "nas"
    shutil.copytree(tmp_path / "cold", nas)
    slot = next(path for path in sorted((nas / "journal").rglob("*")) if path.is_file())
    flip(slot)
    done = tierfs("move", "--to", nas, store=store, check=False)
    assert (done.code, f"{slot.relative_to(nas)} differs between" in done.err) == (74, True), done
    slot.unlink()
    tierfs("-q", "move", "--to", nas, store=store)
    require_clean(store)


def test_the_journal_of_another_store_is_enough_to_refuse_its_place(store: Path, tmp_path: Path) -> None:
    """Its mark is lost."""
    nas = tmp_path / "nas"
    nas.mkdir()
    tierfs("-q", "init", "--cold-dir", nas, store=tmp_path / "other")
    (nas / "tierfs-store").unlink()
    before = {path: path.stat().st_mtime_ns for path in nas.rglob("*")}
    done = tierfs("move", "--to", nas, store=store, check=False)
    assert (done.code, "already contains a tierfs store" in done.err) == (5, True), done
    assert {path: path.stat().st_mtime_ns for path in nas.rglob("*")} == before


def rewrite(file: Path, data: bytes) -> None:
    status = file.stat()
    file.chmod(0o600)
    file.write_bytes(data)
    file.chmod(status.st_mode)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def flip(file: Path, at: int | None = None) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 3 if at is None else at] ^= 1
    rewrite(file, data)


SPOIL: dict[str, Callable[[Path], None]] = {
    "flip": flip,
    "end": lambda file: flip(file, at=-1),
    "cut": lambda file: rewrite(file, file.read_bytes()[:-1]),
    "empty": lambda file: rewrite(file, b""),
}


@pytest.mark.s3
def test_a_server_copies_by_itself_between_its_buckets_and_prefixes(tmp_path: Path, rgw_bucket: Bucket) -> None:
    store, (endpoint, bucket) = tmp_path / "s", rgw_bucket
    tierfs("-q", "init", "--bucket", f"s3://{bucket}/old", "--endpoint-url", endpoint.endpoint_url, store=store)
    large = os.urandom(6 << 20) * 2
    tierfs("-q", "append", "large", store=store, stdin=large)
    filled(store)
    assert tierfs("--json", "archive", "--class", CLASS, store=store).json["objects"] == 2
    done = tierfs("--json", "move", "--to", f"s3://{bucket}/new", store=store).json
    assert done["server_bytes"] >= len(large)
    status = tierfs("status", "--json", store=store).json
    assert (status["cold_url"], status["archived_objects"]) == (f"s3://{bucket}/new", 0)
    with closing(endpoint.client()) as client:
        listed = client.list_objects_v2(Bucket=bucket, Prefix="new/")["Contents"]
        assert {entry["StorageClass"] for entry in listed} == {"STANDARD"}
    require_clean(store)
    (tmp_path / "nas").mkdir()
    done = tierfs("--json", "move", "--to", tmp_path / "nas", store=store).json
    assert (done["server_bytes"], done["endpoint_url"]) == (0, "")
    require_clean(store)
