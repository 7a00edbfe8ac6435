"""A second `init --if-missing`: what is compared of a cold tier in S3."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tierfs.app.init_again import existing_store
from tierfs.app.setup.create import INSIDE, init_store
from tierfs.app.store import open_store
from tierfs.base.words.errors import AlreadyExists, InvalidRequest
from tierfs.base.words.types import ROOT_DIRECTORY
from tierfs.engine.chunkstore.place import Place, Server
from tierfs.engine.metadata import changes, policies
from tierfs.engine.metadata.tables import LOCATIONS

BUCKET = "s3://logs/prod"
SERVER = "http://s3.example:9000"
FOUND = {"endpoint_url": SERVER, "region": "eu-central-1", "profile": "archive"}


def store_with(path: Path, **place: str) -> Path:
    """A store whose record of the cold tier is this."""
    there = Place.parsed(BUCKET, Server(**place))
    init_store(path)
    with open_store(path) as store, store.metadata.write() as txn:
        changes.put(txn, LOCATIONS, there.record)
    return path


@pytest.mark.parametrize("given", [{"endpoint_url": SERVER}, {"endpoint_url": SERVER, "region": "eu-central-1"}, FOUND])
def test_a_store_with_this_bucket_is_unchanged(given: Mapping[str, str], tmp_path: Path) -> None:
    report = existing_store(store_with(tmp_path / "store", **FOUND), Place.parsed(f"{BUCKET}/", Server(**given)))
    assert report is not None
    assert (report.cold_url, report.created, report.warnings) == (BUCKET, False, ())


@pytest.mark.parametrize(
    ("url", "given", "difference"),
    [
        ("s3://logs/test", {"endpoint_url": SERVER}, "it is s3://logs/prod, not s3://logs/test"),
        (BUCKET, {}, f"endpoint_url is {SERVER}, not none"),
        (BUCKET, {"endpoint_url": "http://other"}, f"endpoint_url is {SERVER}, not http://other"),
        (BUCKET, {"endpoint_url": SERVER, "region": "us-east-1"}, "region is eu-central-1, not us-east-1"),
        (BUCKET, {"endpoint_url": SERVER, "profile": "b"}, "profile is archive, not b"),
    ],
)
def test_another_cold_tier_is_refused_with_the_difference(
    url: str, given: Mapping[str, str], difference: str, tmp_path: Path
) -> None:
    path = store_with(tmp_path / "store", **FOUND)
    with pytest.raises(AlreadyExists) as refused:
        existing_store(path, Place.parsed(url, Server(**given)))
    assert str(refused.value).endswith(f"with another cold tier: {difference}")


@pytest.mark.parametrize(
    ("changed", "chosen", "warnings"),
    [
        ({}, {"compression": "zstd"}, ()),
        ({}, {}, ()),
        ({"compression": "off"}, {}, ()),
        ({}, {"ack": "local"}, ()),
        (
            {},
            {"compression": "auto"},
            ("compression is zstd (directory /), and stays so; to change it: tierfs config / compression=auto",),
        ),
        ({}, {"ack": "cold"}, ("ack is local (built-in), and stays so; to change it: tierfs config / ack=cold",)),
    ],
)
def test_another_policy_of_the_whole_store_stays_and_is_told(
    changed: Mapping[str, str], chosen: Mapping[str, str], warnings: tuple[str, ...], tmp_path: Path
) -> None:
    init_store(tmp_path / "store", root_policies={"compression": "zstd"})
    with open_store(tmp_path / "store") as store, store.metadata.write() as txn:
        policies.change(txn, "", put_settings=changed)
    report = existing_store(tmp_path / "store", INSIDE, chosen)
    assert report is not None
    assert report.warnings == warnings
    with open_store(tmp_path / "store") as store, store.metadata.read() as txn:
        held = policies.settings_of(txn, ROOT_DIRECTORY)
    assert held == {"compression": "zstd", **changed}


def test_policies_that_contradict_each_other_make_no_store(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no cold tier"):
        init_store(tmp_path / "store", None, root_policies={"ack": "cold"})
    assert not (tmp_path / "store").exists()


def test_without_a_store_there_is_nothing_to_compare(tmp_path: Path) -> None:
    assert existing_store(tmp_path / "none", INSIDE) is None
    assert not (tmp_path / "none").exists()
