"""Pulsar's paths by plain HTTP, and each field of its offload policies: set, checked, or refused, never dropped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.commands import tierfs
from tests.faces.admin.conftest import Served, serving
from tierfs.app.setup import theirs
from tierfs.app.setup.create import init_store
from tierfs.app.store import open_store
from tierfs.base.words.errors import InvalidRequest, NotFound
from tierfs.base.words.types import MIB, LocationId, ReadPriority
from tierfs.engine.metadata.records import LocationRecord
from tierfs.faces.admin.offloads import OffloadRun
from tierfs.faces.admin.pulsar import offload_policies, topics
from tierfs.faces.admin.pulsar.offload_policies import OffloadPlace
from tierfs.faces.admin.verb_runs import RunState

S3 = OffloadPlace.of(LocationRecord(id=LocationId(1), url="s3://b/p", endpoint_url="http://h:1", region="r"), 64 * MIB)
S3_WITHOUT_REGION = OffloadPlace.of(LocationRecord(id=LocationId(1), url="s3://b"), MIB)
GCS = OffloadPlace.of(LocationRecord(id=LocationId(1), url="gs://b"), 64 * MIB)
FILES = OffloadPlace.of(LocationRecord(id=LocationId(1), url="hdfs://n/d"), 64 * MIB)
NONE = OffloadPlace.of(None, 64 * MIB)

SET = [
    ("managedLedgerOffloadThresholdInBytes", 10, {"offload_above_bytes": "10"}),
    ("managedLedgerOffloadThresholdInBytes", 0, {"offload_above_bytes": "0"}),
    ("managedLedgerOffloadThresholdInBytes", -1, {"offload_above_bytes": "off"}),
    ("managedLedgerOffloadThresholdInSeconds", 60, {"offload_after": "60"}),
    ("managedLedgerOffloadThresholdInSeconds", -1, {"offload_after": "off"}),
    ("managedLedgerOffloadDeletionLagInMillis", 14_400_000, {"deletion_lag": "14400"}),
    ("managedLedgerOffloadDeletionLagInMillis", -5, {"deletion_lag": "off"}),
    ("managedLedgerOffloadedReadPriority", "BOOKKEEPER_FIRST", {"read_priority": "local-first"}),
    ("managedLedgerOffloadedReadPriority", "TIERED_STORAGE_FIRST", {"read_priority": "offloaded-first"}),
    ("managedLedgerOffloadedReadPriority", "tiered-storage-only", {"read_priority": "offloaded-only"}),
]

SAYS_NOTHING_NEW = [
    (S3, {"managedLedgerOffloadDriver": "S3", "s3ManagedLedgerOffloadBucket": "b", "managedLedgerOffloadBucket": "b"}),
    (S3, {"managedLedgerOffloadServiceEndpoint": "http://h:1/", "managedLedgerOffloadRegion": "r"}),
    (S3, {"managedLedgerOffloadMaxBlockSizeInBytes": 64 * MIB, "s3ManagedLedgerOffloadCredentialId": None}),
    (S3, {"offloadersDirectory": "./offloaders", "managedLedgerOffloadMaxThreads": 2, "s3Driver": True}),
    (S3, {"managedLedgerExtraConfigurations": {}, "gcsManagedLedgerOffloadReadBufferSizeInBytes": MIB}),
    (S3_WITHOUT_REGION, {"s3ManagedLedgerOffloadRegion": "anywhere"}),
    (GCS, {"managedLedgerOffloadDriver": "google-cloud-storage", "gcsManagedLedgerOffloadBucket": "b"}),
    (FILES, {"managedLedgerOffloadDriver": "filesystem", "fileSystemURI": "hdfs://n/d/"}),
    (FILES, {"managedLedgerOffloadMaxBlockSizeInBytes": 64 * MIB}),
]

REFUSED = [
    (S3, "managedLedgerOffloadDriver", "azureblob"),
    (S3, "managedLedgerOffloadDriver", 7),
    (S3, "managedLedgerOffloadBucket", "another"),
    (S3, "s3ManagedLedgerOffloadServiceEndpoint", "http://other"),
    (S3, "s3ManagedLedgerOffloadRegion", "other"),
    (S3, "gcsManagedLedgerOffloadBucket", "b"),
    (S3, "managedLedgerOffloadMaxBlockSizeInBytes", 32 * MIB),
    (S3_WITHOUT_REGION, "managedLedgerOffloadMaxBlockSizeInBytes", 64 * MIB),
    (S3_WITHOUT_REGION, "gcsManagedLedgerOffloadRegion", "anywhere"),
    (S3_WITHOUT_REGION, "managedLedgerOffloadServiceEndpoint", "http://h"),
    (S3, "managedLedgerOffloadReadBufferSizeInBytes", 5 * MIB),
    (S3, "s3ManagedLedgerOffloadCredentialId", "geheim"),
    (S3, "s3ManagedLedgerOffloadCredentialSecret", "geheim"),
    (S3, "s3ManagedLedgerOffloadRole", "geheim"),
    (GCS, "gcsManagedLedgerOffloadServiceAccountKeyFile", "geheim"),
    (S3, "s3ManagedLedgerOffloadRoleSessionName", "mine"),
    (S3, "offloadersDirectory", "/opt"),
    (S3, "managedLedgerOffloadMaxThreads", 3),
    (S3, "managedLedgerOffloadReadThreads", 3),
    (S3, "managedLedgerOffloadPrefetchRounds", 2),
    (S3, "managedLedgerExtraConfigurations", {"a": "b"}),
    (S3, "fileSystemURI", "hdfs://n"),
    (FILES, "fileSystemURI", "hdfs://other"),
    (FILES, "fileSystemProfilePath", "/etc"),
    (FILES, "managedLedgerOffloadBucket", "b"),
    (NONE, "managedLedgerOffloadDriver", "aws-s3"),
    (S3, "managedLedgerOffloadOfTomorrow", 1),
    (S3, "retentionSizeInMB", 1),
    (S3, "managedLedgerOffloadThresholdInBytes", "10"),
    (S3, "managedLedgerOffloadThresholdInBytes", True),
    (S3, "managedLedgerOffloadThresholdInBytes", 2**80),
    (S3, "managedLedgerOffloadDeletionLagInMillis", 1500),
    (S3, "managedLedgerOffloadedReadPriority", "FASTEST"),
    (S3, "managedLedgerOffloadedReadPriority", 1),
]


@pytest.mark.parametrize(("name", "value", "policies"), SET)
def test_a_policy_is_set_and_read_back(name: str, value: Any, policies: dict[str, str]) -> None:
    assert offload_policies.wanted({name: value}, NONE) == policies


@pytest.mark.parametrize(("place", "given_fields"), SAYS_NOTHING_NEW)
def test_what_the_store_has_already_is_taken(place: OffloadPlace, given_fields: dict[str, Any]) -> None:
    assert offload_policies.wanted(given_fields, place) == {}


@pytest.mark.parametrize(
    "given", ["file:/srv/cold", "file:///srv/cold", "file:///srv/cold/", "file://localhost/srv/cold"]
)
@pytest.mark.parametrize("mine", ["file:/srv/cold", "file:///srv/cold"])
def test_a_directory_is_one_place_however_it_is_written(given: str, mine: str) -> None:
    place = OffloadPlace("filesystem", {"fileSystemURI": mine})
    assert offload_policies.wanted({"fileSystemURI": given}, place) == {}
    for other in ("file:///srv/colder", "file://host/srv/cold", "hdfs:///srv/cold"):
        with pytest.raises(InvalidRequest, match="in this store, not"):
            offload_policies.wanted({"fileSystemURI": other}, place)


def test_a_size_of_blocks_that_the_client_sends_by_itself_cannot_be_left_out() -> None:
    with pytest.raises(InvalidRequest) as refused:
        offload_policies.wanted({"managedLedgerOffloadMaxBlockSizeInBytes": 32 * MIB}, S3)
    assert refused.value.remedy is not None
    assert f"--maxBlockSize {64 * MIB}" in refused.value.remedy
    assert "omit it" not in refused.value.remedy


@pytest.mark.parametrize(("place", "name", "value"), REFUSED)
def test_what_means_nothing_here_is_refused(place: OffloadPlace, name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        offload_policies.wanted({name: value}, place)
    said = f"{refused.value} {refused.value.remedy}"
    assert name in said or "read_priority" in said or "offload_above_bytes" in said
    assert ("geheim" in said, bool(refused.value.remedy) or "whole number" in said) == (False, True)


def test_each_field_of_pulsars_class_has_a_row() -> None:
    """Those of OffloadPoliciesImpl of Pulsar 4.0.8."""
    drivers = ("Region", "Bucket", "ServiceEndpoint", "MaxBlockSizeInBytes", "ReadBufferSizeInBytes")
    for prefix in ("managedLedgerOffload", "s3ManagedLedgerOffload", "gcsManagedLedgerOffload"):
        assert all((prefix + name).lower() in theirs.table() for name in drivers)
    assert all(name.lower() in theirs.table() for _, name, _ in REFUSED if name != "managedLedgerOffloadOfTomorrow")


@pytest.mark.parametrize(
    ("priority", "shown"),
    [
        (ReadPriority.LOCAL_FIRST, "BOOKKEEPER_FIRST"),
        (ReadPriority.OFFLOADED_FIRST, "TIERED_STORAGE_FIRST"),
        (ReadPriority.LOCAL_ONLY, "BOOKKEEPER_ONLY"),
        (ReadPriority.OFFLOADED_ONLY, "TIERED_STORAGE_ONLY"),
    ],
)
def test_each_priority_has_a_name_that_is_read_back(priority: ReadPriority, shown: str) -> None:
    assert offload_policies.field(offload_policies.PRIORITY, priority) == shown
    assert ReadPriority(shown) is priority


def make_ledger(path: Path, directory: str, number: int, *, payload: bytes = b"entry") -> None:
    tierfs("ledger", "create", directory, "--id", number, store=path)
    tierfs("ledger", "append", f"{directory}/{number:020}", store=path, stdin=payload)


def test_a_threshold_of_size_alone_is_not_idle(served: Served) -> None:
    """Here all is offloaded at once unless something else is said; a broker's default is never."""
    served.ask("POST", "/v1/mkdir/a/n/t")

    def after(path: str) -> Any:
        return served.ask("GET", f"/v1/policy/{path}").json["policy"]["offload_after"]["value"]

    assert served.ask("PUT", "/admin/v2/namespaces/a/n/offloadThreshold", b"1000").status == 204
    assert (after("a/n"), served.ask("GET", "/admin/v2/namespaces/a/n/offloadThreshold").body) == (None, b"1000")
    assert served.ask("GET", "/admin/v2/namespaces/a/n/offloadThresholdInSeconds").body == b"-1"
    assert served.ask("PUT", "/admin/v2/namespaces/a/n/offloadThresholdInSeconds", b"60").status == 204
    body = json.dumps({"managedLedgerOffloadThresholdInBytes": 5}).encode()
    assert served.ask("POST", "/admin/v2/persistent/a/n/t/offloadPolicies", body).status == 204
    assert after("a/n/t") == 60
    assert served.ask("POST", "/admin/v2/namespaces/a/n/offloadPolicies", body).status == 204
    assert after("a/n") is None
    assert served.ask("DELETE", "/admin/v2/namespaces/a/n/removeOffloadPolicies").status == 204
    assert (after("a/n"), served.ask("GET", "/admin/v2/namespaces/a/n/offloadPolicies").status) == (0, 204)


def test_topics_are_found_where_they_are(path: Path) -> None:
    make_ledger(path, "pulsar/a/n/plain", 1)
    make_ledger(path, "pulsar/a/n/persistent/adopted+%C3%BC%2F1", 2)
    tierfs("config", "pulsar/a/n/empty", "ledger_entries=9", "-q", store=path)
    with serving(path, pulsar_root="pulsar") as served:

        def stats(topic: str) -> Any:
            return served.ask("GET", f"/admin/v2/persistent/a/n/{topic}/internalStats?metadata=false").json

        assert [ledger["ledgerId"] for ledger in stats("plain")["ledgers"]] == [1]
        assert [ledger["ledgerId"] for ledger in stats("adopted+%C3%BC%2F1")["ledgers"]] == [2]
        assert [ledger["ledgerId"] for ledger in stats("adopted%20%c3%bc%2F1")["ledgers"]] == [2]
        assert (stats("empty")["ledgers"], stats("empty")["lastConfirmedEntry"]) == ([], "-1:-1")
        assert served.ask("GET", "/admin/v2/persistent/a/n/plain/partitions").json == {"partitions": 0}
        tierfs("ledger", "terminate", "pulsar/a/n/plain", store=path)
        assert (stats("plain")["state"], stats("plain")["currentLedgerSize"]) == ("Terminated", 5)


WRONG = [
    ("GET", "persistent/a/n/none/offload", b"", 404),
    ("GET", "persistent/a/none/t/offload", b"", 404),
    ("GET", "persistent/a/n/t/offload?force=1", b"", 400),
    ("GET", "persistent/a/n/t/offloadPolicies?isGlobal=true", b"", 412),
    ("GET", "persistent/a/n/../offload", b"", 400),
    ("GET", "persistent/a%2Fn/t/t/offload", b"", 400),
    ("GET", "persistent/a/n/t/seg/offload", b"", 501),
    ("PUT", "persistent/a/n/t/offload", b"null", 400),
    ("PUT", "persistent/a/n/t/offload", b'{"ledgerId": -1, "entryId": -1}', 400),
    ("PUT", "persistent/a/n/t/offload", b'{"ledgerId": "1", "entryId": 0}', 400),
    ("PUT", "persistent/a/n/t/offload", b"{", 400),
    ("POST", "persistent/a/n/t/offload", b"{}", 405),
    ("POST", "namespaces/a/n/offloadPolicies", b"[]", 412),
    ("POST", "namespaces/a/none/offloadPolicies", b"{}", 404),
    ("PUT", "namespaces/a/n/offloadThreshold", b"much", 412),
    ("PUT", "namespaces/a/n/offloadDeletionLagMs", b"1", 412),
    ("GET", "namespaces/a", b"", 501),
    ("GET", "non-persistent/a/n/t/internalStats", b"", 501),
    ("GET", "", b"", 501),
]


def test_what_is_wrong_is_answered_with_a_reason(served: Served) -> None:
    make_ledger(served.path, "a/n/t", 1)
    for method, target, body, status in WRONG:
        got = served.ask(method, f"/admin/v2/{target}", body or None)
        assert (got.status, bool(got.json["reason"])) == (status, True), (method, target)
    status = served.ask("GET", "/admin/v2/persistent/a/n/t/offload").json
    never = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
    assert status == {"status": "NOT_RUN", "lastError": "", "firstUnoffloadedMessage": never}


def test_a_store_without_a_cold_tier_says_so(tmp_path: Path) -> None:
    init_store(tmp_path / "store", None)
    make_ledger(tmp_path / "store", "a/n/t", 1)
    with serving(tmp_path / "store") as served:
        got = served.ask("PUT", "/admin/v2/persistent/a/n/t/offload", b'{"ledgerId": 1, "entryId": 0}')
        assert (got.status, got.json["error"]) == (412, "NoColdTier")
        body = b'{"managedLedgerOffloadDriver": "aws-s3", "managedLedgerOffloadThresholdInBytes": 1}'
        got = served.ask("POST", "/admin/v2/namespaces/a/n/offloadPolicies", body)
        assert (got.status, "the store has no cold tier" in got.json["reason"]) == (412, True)


def test_a_status_says_the_first_message_that_is_not_offloaded_or_why_it_failed() -> None:
    done = OffloadRun("a/n/t", RunState.DONE, result={"first_unoffloaded": "42:0"})
    assert topics.offload_status(done) == {
        "status": "SUCCESS",
        "lastError": "",
        "firstUnoffloadedMessage": {"ledgerId": 42, "entryId": 0, "partitionIndex": -1},
    }
    failed = OffloadRun("a/n/t", RunState.FAILED, error=NotFound("it is gone", remedy="look again"))
    assert (topics.offload_status(failed)["status"], topics.offload_status(failed)["lastError"]) == (
        "ERROR",
        "it is gone; look again",
    )
    assert topics.offload_status(OffloadRun("a/n/t", RunState.RUNNING))["status"] == "RUNNING"


def test_a_tenant_is_one_directory(path: Path) -> None:
    make_ledger(path, "a/n/t", 1)
    with open_store(path) as store, store.metadata.read() as txn:
        assert topics.topic_of(txn, "", "a", "n", "t") == "a/n/t"
        for tenant, namespace in (("a/n", "t"), ("", "a"), ("..", "a"), ("a", "n/t")):
            with pytest.raises(InvalidRequest):
                topics.namespace_of(txn, "", tenant, namespace)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from([row.name for row in theirs.table().values()])


@given(st.dictionaries(FIELDS | st.text(max_size=8), JSON, max_size=4), st.sampled_from([S3, GCS, FILES, NONE]))
def test_any_fields_are_set_or_refused(fields: dict[str, Any], place: OffloadPlace) -> None:
    try:
        policies = offload_policies.wanted(fields, place)
    except InvalidRequest:
        return
    assert set(policies) == {
        offload_policies.POLICY[name] for name in fields if name in offload_policies.POLICY and fields[name] is not None
    }


PARTS = st.sampled_from(["a", "n", "t", "none", "..", "%2F", "%00", "%C3%BC", "persistent", "namespaces", "*"])
PLACES = st.sampled_from(["persistent/a/n/t", "namespaces/a/n"]) | st.lists(PARTS, max_size=4).map("/".join)
BODIES = (
    JSON | st.dictionaries(FIELDS, JSON, max_size=3) | st.dictionaries(st.sampled_from(["ledgerId", "entryId"]), JSON)
)
ENDS = st.sampled_from(["offload", "offloadPolicies", "internalStats", "offloadThreshold", "offloadDeletionLagMs", "x"])
VERBS = st.sampled_from(["GET", "PUT", "POST", "DELETE", "HEAD", "PATCH"])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(VERBS, PLACES, ENDS, BODIES)
def test_any_request_is_answered(served: Served, verb: str, place: str, end: str, data: Any) -> None:
    served.ask("POST", "/v1/mkdir/a/n/t")
    body = None if verb in ("GET", "HEAD") else json.dumps(data).encode()
    got = served.ask(verb, f"/admin/v2/{place}/{end}", body)
    assert got.status in (200, 204, 400, 404, 405, 409, 412, 501), (verb, place, end, data, got.body)
