"""What a Pulsar broker needs to read ledgers that tierfs offloaded: LedgerInfo, its context and the place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.commands import tierfs
from tests.conftest import Bucket
from tests.engine.ledger import independent
from tests.ledgers import new_ledger
from tests.stores import TestStore, open_test_store
from tierfs.engine.ledger.metadata import LedgerInfo, ManagedLedgerInfo, join_uuid
from tierfs.engine.metadata import changes, entries, policies
from tierfs.engine.metadata.ledger_records import OffloadProgress
from tierfs.engine.metadata.tables import LOCATIONS
from tierfs.engine.segments import pulsar_info

# Both halves negative, as Java has them; and neither.
HALVES = (UUID("dd9eb2eb-4230-4a98-aead-091c4a374e0e"), UUID("00000000-0000-0001-0000-000000000002"))


@pytest.mark.s3
def test_a_broker_is_told_the_attempt_and_the_bucket(tmp_path: Path, moto_bucket: Bucket) -> None:
    store, (endpoint, bucket) = tmp_path / "store", moto_bucket
    place = ("--bucket", f"s3://{bucket}", "--endpoint-url", endpoint.endpoint_url, "--region", "eu-west-3")
    tierfs("-q", "init", *place, store=store)
    for ledger_id in (7, 8):
        tierfs("ledger", "create", "t/topic", "--id", str(ledger_id), store=store)
        name = f"t/topic/{ledger_id:020}"
        tierfs("ledger", "append", name, "--lines", store=store, stdin=b"one\ntwo\n")
    tierfs("-q", "seal", f"t/topic/{7:020}", store=store)
    tierfs("-q", "offload", "t/topic", "--before", "8", store=store)

    shown = tierfs("info", f"t/topic/{7:020}", "--json", store=store).json["ledger"]
    printed = tierfs("ledger", "status", "t/topic", "--for-pulsar", "json", store=store)
    managed = json.loads(printed.out)
    closed, still_open = managed["ledgerInfo"]
    context = closed["offloadContext"]
    assert printed.err == "", "nothing keeps a broker from the root of a bucket"
    assert closed == shown["pulsar"]
    assert still_open == {"ledgerId": "8", "timestamp": "0"}, "as Pulsar has an open ledger"
    assert (closed["ledgerId"], closed["entries"], closed["size"]) == ("7", "2", "8")
    assert join_uuid(int(context["uidMsb"]), int(context["uidLsb"])) == UUID(shown["offload_uuid"])
    assert (context["complete"], context["bookkeeperDeleted"]) == (True, False)
    driver = context["driverMetadata"]
    assert driver["name"] == "aws-s3"
    assert {pair["key"]: pair["value"] for pair in driver["properties"]} == {
        "managedLedgerOffloadDriver": "AWS_S3",
        "bucket": bucket,
        "region": "eu-west-3",
        "serviceEndpoint": endpoint.endpoint_url,
    }
    text = tierfs("info", f"t/topic/{7:020}", store=store).out
    assert f"uidMsb {context['uidMsb']}, uidLsb {context['uidLsb']}" in text
    assert f"aws-s3, managedLedgerOffloadDriver AWS_S3, bucket {bucket}, region eu-west-3" in text

    # The objects are where a broker with this record looks: in the root, under the attempt's name.
    client = endpoint.client()
    keys = {item["Key"] for item in client.list_objects_v2(Bucket=bucket)["Contents"]}
    client.close()
    assert {f"{shown['offload_uuid']}-ledger-7", f"{shown['offload_uuid']}-ledger-7-index"} <= keys


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    """A store whose cold tier is only asked for its address."""
    with open_test_store(tmp_path) as opened:
        yield opened


def place_is(store: TestStore, **parts: str) -> None:
    """Give the cold tier another address in the records."""
    with store.metadata.write() as txn:
        record = policies.location(txn, txn.store.cold_location_id)
        changes.put(txn, LOCATIONS, replace(record, **parts))


def offloaded_as(store: TestStore, progress: OffloadProgress, name: str) -> LedgerInfo:
    with store.metadata.write() as txn:
        segment = pulsar_info.directories.segment_by_name(txn, name)
        entries.put_ledger(txn, replace(entries.find(txn, segment.id), offload=progress))
    with store.metadata.read() as txn:
        info = pulsar_info.info_at(txn, name)
    assert isinstance(info, LedgerInfo)
    return info


def properties(info: LedgerInfo) -> dict[str, str]:
    assert info.offload is not None
    assert info.offload.driver is not None
    return {pair.key: pair.value for pair in info.offload.driver.properties}


@pytest.mark.parametrize("uuid", HALVES)
def test_the_bytes_are_those_of_the_published_message(store: TestStore, uuid: UUID) -> None:
    place_is(store, url="s3://bucket", region="r")
    name = new_ledger(store, [b"one", b"two"])
    ours = replace(OffloadProgress.begun(uuid, "tierfs"), complete=True, timestamp_ms=5)
    data = offloaded_as(store, ours, name).encode()
    told: dict[int, list[Any]] = independent.fields(data)
    context = independent.fields(told[5][0])
    assert told[2] == [2], "entries"
    assert told[3] == [6], "size"
    halves = [context[number][0] % 2**64 for number in (1, 2)]
    assert UUID(int=halves[0] << 64 | halves[1]) == uuid, "fields 1 and 2: two's complement of 64 bits"
    assert (context[3], context[5]) == ([1], [5]), "complete, timestamp"
    driver = independent.fields(context[6][0])
    pairs = [independent.fields(pair) for pair in driver[2]]
    assert driver[1] == [b"aws-s3"]
    assert [(pair[1][0], pair[2][0]) for pair in pairs] == [
        (b"managedLedgerOffloadDriver", b"AWS_S3"),
        (b"bucket", b"bucket"),
        (b"region", b"r"),
        (b"serviceEndpoint", b""),
    ]


@pytest.mark.parametrize(
    ("url", "driver", "why"),
    [
        ("s3://b", "aws-s3", None),
        ("s3://b/", "aws-s3", None),
        ("gs://b", "google-cloud-storage", None),
        ("abfss://b@account.dfs.core.windows.net", "azureblob", None),
        ("s3://b/prefix", "aws-s3", "Pulsar reads only the root of a bucket, not /prefix"),
        ("file:/srv/cold", "tierfs", "Pulsar has no driver for file:/srv/cold"),
        ("sftp://host/cold", "tierfs", "Pulsar has no driver for sftp://host/cold"),
    ],
)
def test_the_place_decides_the_driver(store: TestStore, url: str, driver: str, why: str | None) -> None:
    place_is(store, url=url)
    name = new_ledger(store, [b"one"])
    info = offloaded_as(store, replace(OffloadProgress.begun(HALVES[0], "tierfs"), complete=True), name)
    assert info.offload is not None
    assert info.offload.driver is not None
    assert info.offload.driver.name == driver
    assert properties(info).get("bucket") == (None if driver == "tierfs" else "b")
    with store.metadata.read() as txn:
        known = entries.find(txn, pulsar_info.directories.segment_by_name(txn, name).id)
        assert pulsar_info.why_not_read(txn, known) == why


def test_a_moved_bucket_is_named_where_it_is_now(store: TestStore) -> None:
    place_is(store, url="s3://old")
    name = new_ledger(store, [b"one"])
    progress = replace(OffloadProgress.begun(HALVES[0], "tierfs"), complete=True)
    assert properties(offloaded_as(store, progress, name))["bucket"] == "old"
    place_is(store, url="s3://new", endpoint_url="http://there:9000")
    assert properties(offloaded_as(store, progress, name))["serviceEndpoint"] == "http://there:9000"
    assert properties(offloaded_as(store, progress, name))["bucket"] == "new"


def test_the_context_of_an_adopted_ledger_is_untouched(store: TestStore) -> None:
    place_is(store, url="s3://ours")
    name = new_ledger(store, [b"one"])
    theirs = {"bucket": "theirs", "prefix": "p"}
    info = offloaded_as(store, replace(OffloadProgress.begun(HALVES[0], "pulsar", theirs), complete=True), name)
    assert properties(info) == theirs
    assert info.offload is not None
    assert info.offload.driver is not None
    assert info.offload.driver.name == "pulsar"


def test_without_a_cold_tier_and_without_an_attempt(store: TestStore) -> None:
    name = new_ledger(store, [])
    with store.metadata.read() as txn:
        info = pulsar_info.info_at(txn, name)
        assert isinstance(info, LedgerInfo)
        assert (info.entries, info.size, info.offload) == (0, 0, None)
        managed = pulsar_info.info_at(txn, "topic")
        assert isinstance(managed, ManagedLedgerInfo)
        assert (managed.terminated, len(managed.ledgers)) == (None, 1)


@pytest.mark.parametrize(("payloads", "last"), [([], -1), ([b"one", b"two"], 1)])
def test_a_terminated_managed_ledger_names_its_last_entry(store: TestStore, payloads: list[bytes], last: int) -> None:
    new_ledger(store, payloads, close=False)
    store.engine.terminate_managed_ledger("topic")
    with store.metadata.read() as txn:
        managed = pulsar_info.managed_ledger_info(txn, "topic")
    assert managed.terminated is not None
    assert (managed.terminated.ledger_id, managed.terminated.entry_id) == (managed.ledgers[0].ledger_id, last)
    assert ManagedLedgerInfo.decode(managed.encode(), "it") == managed
