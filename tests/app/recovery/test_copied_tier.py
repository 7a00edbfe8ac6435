"""Restore drills: the cold tier is a copy that plain tools made, with other etags and times, without user metadata.

The bytes of a copy are those that were written: their CRC32C proves it, and an etag is a hint.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from tests import verbs
from tests.servers.endpoint import ACCESS_KEY, SECRET_KEY, S3Endpoint
from tests.stores import quiet
from tests.upkeep.check.checked import append, read, read_metadata_here, run_check
from tierfs.app.check import verify
from tierfs.app.recovery.from_objects import recover_from_objects
from tierfs.app.recovery.recover import recover_store
from tierfs.app.setup.create import init_store
from tierfs.app.store import Store, open_store
from tierfs.base.bytes.progress import unseen
from tierfs.base.words.types import MIB, ROOT_DIRECTORY, PayloadEncoding, Tier
from tierfs.engine.chunkstore.place import Place, Server
from tierfs.engine.metadata import policies
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.upkeep.check.findings import Kind, Severity

_PART_BYTES = 5 * MIB
"""The least that S3 takes, and not what tierfs uploads."""


@cache
def contents() -> dict[str, bytes]:
    return {
        "logs/large": random.Random(1).randbytes(12 * MIB + 12_345),
        "logs/lines": b"".join(b"%08d the same words on each line\n" % number for number in range(400_000)),
        "logs/small": random.Random(2).randbytes(300_000),
        "logs/tiny": b"short",
    }


def _tar(source: Path, target: Path) -> None:
    """GNU tar's own format: whole seconds, no extended attributes."""
    target.mkdir()
    packed = subprocess.run(["tar", "-C", source, "-c", "."], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-C", target, "-x"], input=packed, check=True)


def _cp(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-r", source, target], check=True)


def _cp_archive(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", source, target], check=True)


def rclone(*words: str | Path) -> None:
    """Run rclone, which the extra [dev] installs beside the interpreter."""
    found = shutil.which("rclone", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert found is not None, "rclone is missing: make dev-deps"
    subprocess.run([found, "--config", "/dev/null", "--quiet", *words], check=True)


def _rclone(source: Path, target: Path) -> None:
    """Times are kept to the nanosecond; nothing else is."""
    rclone("copy", source, target)


TOOLS: dict[str, Callable[[Path, Path], None]] = {"tar": _tar, "cp": _cp, "cp-archive": _cp_archive, "rclone": _rclone}


@pytest.fixture(autouse=True)
def no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    read_metadata_here(monkeypatch)


@dataclass(frozen=True, slots=True)
class Origin:
    """A store all of whose bytes are in its cold tier, and nowhere else."""

    store: Path
    place: Place


COMPRESSIONS = [
    pytest.param(("off", "off"), id="plain", marks=pytest.mark.whole),
    pytest.param(("zstd", "zstd"), id="compressed", marks=pytest.mark.whole),
    pytest.param(("off", "zstd"), id="mixed"),
]
"""Of the first and of the second half of each segment: the mixed ones have objects of both forms."""


def made(store: Path, place: Place, compressions: Sequence[str] = ("off", "off")) -> Origin:
    """Objects of several parts, and those that small segments share."""
    init_store(store, place)
    with open_store(store) as opened:
        for number, compression in enumerate(compressions):
            with opened.metadata.write() as txn:
                sizes = {"chunk_bytes": str(4 * MIB), "object_bytes": str(64 * MIB)}
                policies.put(txn, ROOT_DIRECTORY, {**sizes, "compression": compression})
            for name, data in contents().items():
                half = len(data) // 2
                append(opened, name, data[half:] if number else data[:half], seal=bool(number))
            verbs.offload(opened)
        verbs.evict(opened)
        with opened.metadata.read() as txn:
            cold = [holder for _, holder in txn.scan(OBJECTS)]
        compressed = {holder.encoding is PayloadEncoding.ZSTD_FRAMES for holder in cold if not holder.packed}
        assert compressed == {compression == "zstd" for compression in compressions}
        assert max(holder.packed for holder in cold) >= 2, "the small ones share an object"
    return Origin(store, place)


def assert_reads(store: Store) -> None:
    """Every byte is what was written."""
    for name, data in contents().items():
        assert read(store, name) == data, name


def assert_drill(origin: Origin) -> None:
    """The store whose cold tier was replaced by a copy reads, is sound, and knows the copy afterwards."""
    for deep in (False, True):
        outcomes, _ = run_check(origin.store, deep=deep)
        assert all(one.finding.severity is Severity.NOTE for one in outcomes), outcomes
    with open_store(origin.store) as store:
        assert_reads(store)
    with open_store(origin.store) as store:
        assert all(one.ok and not one.marked for one in verify(store, "", unseen))
        with store.metadata.read() as txn:
            holders = [holder for _, holder in txn.scan(OBJECTS)]
        assert {holder.tier for holder in holders} == {Tier.COLD}
        for holder in holders:
            assert store.storage_of(holder.location_id).stat(holder.name).etag == holder.etag
        verbs.settle(store)
    assert [one for one in run_check(origin.store, repair=True)[0] if one.finding.kind is Kind.ETAGS] == []


def assert_recovers(path: Path, place: Place) -> None:
    """After the total loss of the host the copy is enough: from its journal, and then from names and bytes alone."""
    report = recover_store(path / "journal", place, quiet)
    assert (report.segments, len(report.incomplete)) == (len(contents()), 0)
    with open_store(path / "journal") as store:
        assert_reads(store)
    assert_rebuilds(path, place)


def assert_rebuilds(path: Path, place: Place) -> None:
    report = recover_from_objects(path / "objects", place, quiet, lambda _: None)
    assert (report.left, report.unproven) == ((), ())
    with open_store(path / "objects") as store:
        assert_reads(store)
        assert all(one.ok for one in verify(store, "", unseen))


@pytest.fixture(scope="module", params=COMPRESSIONS)
def origin(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Origin:
    path = tmp_path_factory.mktemp("origin")
    (path / "cold").mkdir()
    return made(path / "store", Place.in_directory(path / "cold"), request.param)


@contextmanager
def copied(cold: Path, tool: Callable[[Path, Path], None]) -> Iterator[None]:
    """A copy in the place of a directory, which comes back afterwards."""
    aside = cold.with_name("aside")
    cold.rename(aside)
    tool(aside, cold)
    try:
        yield
    finally:
        shutil.rmtree(cold)
        aside.rename(cold)


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_a_directory_restored_from_a_copy(origin: Origin, tool: Callable[[Path, Path], None], tmp_path: Path) -> None:
    cold = origin.place.directory
    assert cold is not None
    store = tmp_path / "store"
    shutil.copytree(origin.store, store)  # its cold tier is named by an absolute path
    with copied(cold, tool):
        assert_drill(replace(origin, store=store))


@pytest.fixture(params=[pytest.param("moto_s3", marks=pytest.mark.whole), "rgw"])
def server(request: pytest.FixtureRequest) -> S3Endpoint:
    found: S3Endpoint = request.getfixturevalue(request.param)
    return found


def copy_bucket(server: S3Endpoint, source: str, target: str) -> None:
    """Every object in parts of another size, or at once, and without its user metadata."""
    client = server.client()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=source):
        for item in page.get("Contents", []):
            place = {"Bucket": target, "Key": item["Key"]}
            origin = {"Bucket": source, "Key": item["Key"]}
            if item["Size"] <= _PART_BYTES:
                client.copy_object(**place, CopySource=origin, MetadataDirective="REPLACE", Metadata={})
                continue
            upload = client.create_multipart_upload(**place)["UploadId"]
            parts = []
            for number, start in enumerate(range(0, item["Size"], _PART_BYTES), 1):
                span = f"bytes={start}-{min(start + _PART_BYTES, item['Size']) - 1}"
                part = client.upload_part_copy(
                    **place, CopySource=origin, CopySourceRange=span, UploadId=upload, PartNumber=number
                )
                parts.append({"PartNumber": number, "ETag": part["CopyPartResult"]["ETag"]})
            client.complete_multipart_upload(**place, UploadId=upload, MultipartUpload={"Parts": parts})
    client.close()


def empty(server: S3Endpoint, bucket: str) -> None:
    client = server.client()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for item in page.get("Contents", []):
            client.delete_object(Bucket=bucket, Key=item["Key"])
    client.close()


@pytest.mark.slow
@pytest.mark.parametrize("compressions", COMPRESSIONS)
def test_a_bucket_copied_with_other_parts(server: S3Endpoint, tmp_path: Path, compressions: Sequence[str]) -> None:
    """Copied aside and back: the store reads on; its host lost: it is recovered from the copy."""
    bucket, aside, lost = (server.create_bucket() for _ in range(3))
    place = Place.parsed(f"s3://{bucket}/p", Server(server.endpoint_url))
    origin = made(tmp_path / "store", place, compressions)
    copy_bucket(server, bucket, aside)
    empty(server, bucket)
    copy_bucket(server, aside, bucket)
    assert_drill(origin)
    assert_recovers(tmp_path, place.changed({"url": f"s3://{aside}/p"}))
    rclone_bucket(server, bucket, lost)
    (tmp_path / "objects").rename(tmp_path / "before")
    assert_rebuilds(tmp_path, place.changed({"url": f"s3://{lost}/p"}))


def rclone_bucket(server: S3Endpoint, source: str, target: str) -> None:
    """Down to a disk and up again, in rclone's own parts."""
    remote = f":s3,provider=Other,access_key_id={ACCESS_KEY},secret_access_key={SECRET_KEY}"
    remote += f",endpoint='{server.endpoint_url}':"
    options = ["--s3-upload-cutoff", "6Mi", "--s3-chunk-size", "5Mi", "--s3-disable-checksum", "--disable", "Copy"]
    rclone(*options, "copy", remote + source, remote + target)
