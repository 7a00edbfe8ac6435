"""tierfs offload --metadata: what the caller adds to the objects of one offload, and what is refused."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import tierfs as package
from tests.commands import tierfs
from tests.conftest import Bucket
from tierfs.base.words.errors import InvalidRequest
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
from tierfs.tiering import extra_metadata

LONGEST = "/".join(["n" * 199] * 4)
"""A name of as many bytes as one may have."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    tierfs("-q", "init", store=tmp_path / "store")
    return tmp_path / "store"


def metadata_of(store: Path, start: str) -> dict[str, dict[str, str]]:
    """The user metadata of the objects whose names start so, as inspect shows them."""
    cold = DirectoryStorage(store / "cold")
    return {
        stored.name: tierfs("inspect", "--json", stored.name, store=store).json["metadata"]
        for stored in cold.list(start)
    }


def one(store: Path, start: str) -> dict[str, str]:
    (found,) = metadata_of(store, start).values()
    return found


def test_chunks_packs_and_ledgers_have_them_and_inspect_shows_them(store: Path) -> None:
    large = bytes(5 * 1024 * 1024)
    tierfs("-q", "append", "logs/large", store=store, stdin=large)
    for name in ("logs/small", "logs/tiny"):
        tierfs("-q", "append", name, store=store, stdin=b"bytes")
    with package.open_store(store) as opened, opened.managed_ledger("topic") as ledgers:
        ledgers.add([b"one", b"two"])
        ledgers.roll()
    added = ("--metadata", "Team=search & find", "--metadata", "ticket=ü=1")
    tierfs("-q", "offload", *added, store=store)
    wanted = {"team": "search & find", "ticket": "%C3%BC=1"}
    for start in ("segments/", "packs/"):
        assert wanted.items() <= one(store, start).items(), start
    of_ledgers = {name: data for name, data in metadata_of(store, "").items() if "-ledger-" in name}
    assert len(of_ledgers) == 2
    assert all(wanted.items() <= data.items() for data in of_ledgers.values())
    (name,) = metadata_of(store, "segments/")
    assert re.search(r"^metadata +team = search & find$", tierfs("inspect", name, store=store).out, re.M)


def test_the_longest_name_and_the_largest_metadata_fit_into_s3(moto_bucket: Bucket, tmp_path: Path) -> None:
    store, value = tmp_path / "store", "v" * (extra_metadata.MAX_EXTRA_BYTES - 1)
    where = ("--bucket", f"s3://{moto_bucket[1]}/{'p' * 80}", "--endpoint-url", moto_bucket[0].endpoint_url)
    tierfs("-q", "init", *where, store=store)
    with package.open_store(store) as opened:
        opened.append(LONGEST, bytes(5 * 1024 * 1024), seal=True)
        opened.offload(metadata={"k": value})
        with opened.managed_ledger(LONGEST.rpartition("/")[0] + "m") as ledgers:
            ledgers.add([b"entry"])
            ledgers.roll()
            ledgers.offload_prefix(ledgers.end() or "0:0", metadata={"k": value})
        cold = opened.info(LONGEST)
        assert cold.cold_bytes == cold.length


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"store": "x"}, "'store' is reserved"),
        ({"tierfs-transform": "x"}, "cannot be added"),
        ({"tierfs-later": "x"}, "is reserved"),
        ({"ManagedLedgerName": "x"}, "'managedledgername' is reserved"),
        ({"a b": "x", "a-b": "y"}, "cannot be added"),
        ({"": "x"}, "cannot be added"),
        ({"k": "v" * 512}, "513 bytes, but at most 512"),
    ],
)
def test_metadata_that_no_object_can_have_are_refused(given: dict[str, str], said: str, store: Path) -> None:
    with package.open_store(store) as opened:
        opened.append("s", b"bytes", seal=True)
        with pytest.raises(InvalidRequest, match=said):
            opened.offload(metadata=given)
        assert opened.info("s").cold_bytes == 0


def test_the_command_refuses_what_is_no_pair(store: Path) -> None:
    tierfs("-q", "append", "s", store=store, stdin=b"bytes")
    assert "'team' is not KEY=VALUE" in tierfs("offload", "--metadata", "team", store=store, check=False).err
    twice = tierfs("offload", "--metadata", "a=1", "--metadata", "a=2", store=store, check=False)
    assert "--metadata a is given twice" in twice.err


def test_a_mount_that_holds_the_store_makes_them(store: Path, tmp_path: Path) -> None:
    (mnt := tmp_path / "mnt").mkdir()
    tierfs("-q", "config", "/", "offload_after=off", store=store)
    tierfs("mount", mnt, store=store)
    try:
        tierfs("-q", "append", "s", store=store, stdin=bytes(5 * 1024 * 1024))
        tierfs("-q", "offload", "s", "--metadata", "by=holder", store=store)
        assert one(store, "segments/")["by"] == "holder"
    finally:
        tierfs("umount", mnt, store=store, check=False)


def test_objects_that_replace_others_and_recovery_do_without_them(store: Path, tmp_path: Path) -> None:
    tierfs("-q", "config", "/", "chunk_bytes=4MiB", "object_bytes=64MiB", store=store)
    part = bytes(5 * 1024 * 1024)
    for number in range(2):
        tierfs("-q", "append", "s", store=store, stdin=part)
        tierfs("-q", "offload", "s", "--metadata", f"number={number}", store=store)
    tierfs("-q", "seal", "s", store=store)
    found = metadata_of(store, "segments/")
    assert {data["number"] for data in found.values()} == {"0", "1"}
    tierfs("-q", "consolidate", "s", store=store)
    new = metadata_of(store, "segments/").keys() - found.keys()
    assert all("number" not in metadata_of(store, name)[name] for name in new)
    lost, cold = tmp_path / "lost", str(store / "cold")
    shutil.rmtree(store / "cold/journal")
    tierfs("-q", "recover", "--from-objects", "--cold-dir", cold, "--yes", store=lost)
    assert tierfs("cat", "s", store=lost).out == (2 * part).decode()
