"""Pulsar's own command line against a store: offloads with their status, policies, and what a mistake is answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.conftest import Bucket
from tests.faces.admin.conftest import Served, serving
from tests.faces.admin.pulsar_admin import DONE, Printed, PulsarAdmin
from tests.mount.waiting import eventually
from tests.servers.gate import gate_to
from tests.servers.hdfs_server import missing_tools
from tests.servers.rgw import free_ports
from tierfs.app.setup.create import init_store
from tierfs.engine.chunkstore.place import Place, Server

TOPIC = "persistent://public/default/topic"
NAMESPACE = "public/default"

Run = Callable[[str], Printed]

# One process of a run, and one JVM.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.xdist_group("pulsar-admin")]


@pytest.fixture(scope="module")
def tool() -> Iterator[PulsarAdmin]:
    if missing := missing_tools():
        pytest.skip(f"pulsar-admin needs {' and '.join(missing)}")
    if not DONE.exists():
        pytest.skip("pulsar-admin needs its jars: make test-deps")
    with PulsarAdmin() as tool:
        yield tool


@contextmanager
def running(tool: PulsarAdmin, path: Path, **settings: object) -> Iterator[tuple[Run, Served]]:
    """Serve a store over TCP, and give commands to it."""
    listen = f"127.0.0.1:{free_ports(1)}"
    with serving(path, listen=listen, writer_idle_s="200ms", **settings) as served:
        yield (lambda command: tool.run(f"http://{listen}", path / "admin.token", command)), served


def make_topic(path: Path, sizes: tuple[int, ...], directory: str = "public/default/topic") -> None:
    """A managed ledger with ledgers of one entry, the last one open."""
    for number, size in enumerate(sizes, 1):
        name = f"{directory}/{number:020}"
        tierfs("ledger", "create", directory, "--id", number, store=path)
        tierfs("ledger", "append", name, store=path, stdin=b"x" * size)
        if number < len(sizes):
            tierfs("seal", name, store=path)


def offloads(path: Path, directory: str = "public/default/topic") -> list[str]:
    status = tierfs("--json", "ledger", "status", directory, store=path).json
    return [ledger["offload"] for ledger in status["ledgers"]]


def test_an_offload_by_size_with_its_status(tool: PulsarAdmin, rgw_bucket: Bucket, tmp_path: Path) -> None:
    endpoint, bucket = rgw_bucket
    path = tmp_path / "store"
    with gate_to(endpoint.endpoint_url) as gate:
        place = Place.parsed(f"s3://{bucket}", Server(gate.url, endpoint.region))
        init_store(path, place)
        make_topic(path, (1000, 1000, 500))
        with running(tool, path) as (run, _):
            stats = run(f"topics stats-internal {TOPIC}").json
            assert [(row["ledgerId"], row["entries"], row["size"]) for row in stats["ledgers"]] == [
                (1, 1, 1000),
                (2, 1, 1000),
                (3, 1, 500),
            ]
            assert (stats["lastConfirmedEntry"], stats["state"], stats["totalSize"]) == ("3:0", "LedgerOpened", 2500)
            assert run(f"topics offload-status {TOPIC}").text.startswith("Offload has not been run")
            assert run(f"topics offload --size-threshold 1G {TOPIC}").text == "Nothing to offload\n"

            gate.silence()
            begun = run(f"topics offload --size-threshold 2000 {TOPIC}")
            assert begun.text == f"Offload triggered for {TOPIC} for messages before 2:0:-1\n"
            assert run(f"topics offload-status {TOPIC}").text == "Offload is currently running\n"
            second = run(f"topics offload --size-threshold 1000 {TOPIC}")
            assert (second.code, "an offload of public/default/topic is already running" in second.text) == (1, True)
            gate.open()
            assert run(f"topics offload-status --wait-complete {TOPIC}").text == "Offload was a success\n"

            assert offloads(path) == ["complete", "none", "none"]
            stats = run(f"topics stats-internal --metadata {TOPIC}").json
            assert [row["offloaded"] for row in stats["ledgers"]] == [True, False, False]
            assert f'"value": "{bucket}"' in stats["ledgers"][0]["metadata"]

            policies = f"-d aws-s3 -b {bucket} -r {endpoint.region} -e {gate.url}"
            assert (
                run(f"namespaces set-offload-policies {NAMESPACE} {policies} -oae 30m -orp bookkeeper-first").code == 0
            )
            got = run(f"namespaces get-offload-policies {NAMESPACE}").json
            assert (got["managedLedgerOffloadBucket"], got["s3ManagedLedgerOffloadServiceEndpoint"]) == (
                bucket,
                gate.url,
            )
            assert got["managedLedgerOffloadDeletionLagInMillis"] == 1_800_000
            assert got["managedLedgerOffloadedReadPriority"] == "BOOKKEEPER_FIRST"
            for other, field in (
                (policies.replace(bucket, "another"), "OffloadBucket is"),
                (policies.replace("aws-s3", "azureblob"), "managedLedgerOffloadDriver is aws-s3 in this store"),
                (f"{policies} -i ID -s geheim", "cold.profile"),
                (f"{policies} -mbs 32M", "MaxBlockSizeInBytes is 67108864"),
            ):
                refused = run(f"namespaces set-offload-policies {NAMESPACE} {other}")
                assert (refused.code, field in refused.text, "geheim" in refused.text) == (1, True, False)


def test_an_offload_that_fails_says_why(tool: PulsarAdmin, path: Path) -> None:
    make_topic(path, (10, 10))
    with running(tool, path) as (run, _):
        (path.parent / "cold").rename(path.parent / "away")
        assert run(f"topics offload -s 0 {TOPIC}").code == 0
        assert eventually(lambda: "currently running" not in run(f"topics offload-status {TOPIC}").text)
        failed = run(f"topics offload-status {TOPIC}")
        assert (failed.code, "Error offloading: " in failed.text, "cold" in failed.text) == (1, True, True)
        (path.parent / "away").rename(path.parent / "cold")
        assert run(f"topics offload -s 0 {TOPIC}").code == 0
        assert run(f"topics offload-status -w {TOPIC}").text == "Offload was a success\n"
        assert offloads(path) == ["complete", "none"]


def test_policies_are_read_back_here_and_there(tool: PulsarAdmin, path: Path) -> None:
    make_topic(path, (10, 10))

    def held(directory: str) -> dict[str, tuple[object, str]]:
        shown = tierfs("--json", "config", directory, store=path).json["policy"]
        return {key: (policy["value"], policy["set_on"]) for key, policy in shown.items() if policy["set_on"]}

    with running(tool, path) as (run, _):
        threshold = f"namespaces get-offload-threshold {NAMESPACE}"
        assert run(threshold).text == "offloadThresholdInBytes: -1\noffloadThresholdInSeconds: -1\n"
        assert run(f"namespaces set-offload-threshold {NAMESPACE} --size 10M --time 2h").code == 0
        assert run(threshold).text == "offloadThresholdInBytes: 10485760\noffloadThresholdInSeconds: 7200\n"
        assert held(NAMESPACE)["offload_above_bytes"] == (10485760, NAMESPACE)
        assert held(NAMESPACE)["offload_after"] == (7200, NAMESPACE)
        assert run(f"namespaces set-offload-threshold {NAMESPACE} --size 0").code == 0
        assert run(threshold).text == "offloadThresholdInBytes: 0\noffloadThresholdInSeconds: -1\n"
        assert held(NAMESPACE)["offload_after"] == (None, NAMESPACE)

        lag = f"namespaces get-offload-deletion-lag {NAMESPACE}"
        assert run(lag).text.startswith("Unset")
        assert run(f"namespaces set-offload-deletion-lag {NAMESPACE} --lag 90m").code == 0
        assert run(lag).text == "90 minute(s)\n"
        assert run(f"namespaces clear-offload-deletion-lag {NAMESPACE}").code == 0
        assert run(lag).text.startswith("Unset")

        priority = "managedLedgerOffloadedReadPriority"
        assert run(f"topicPolicies set-offload-policies {TOPIC} -d filesystem -orp tiered-storage-first").code == 0
        assert held("public/default/topic")["read_priority"] == ("offloaded-first", "public/default/topic")
        own = run(f"topicPolicies get-offload-policies {TOPIC}").json
        assert (own[priority], own.get("managedLedgerOffloadThresholdInBytes")) == ("TIERED_STORAGE_FIRST", None)
        applied = run(f"topicPolicies get-offload-policies {TOPIC} --applied").json
        assert (applied[priority], applied["managedLedgerOffloadThresholdInBytes"]) == ("TIERED_STORAGE_FIRST", 0)
        assert run(f"topicPolicies remove-offload-policies {TOPIC}").code == 0
        assert run(f"topicPolicies get-offload-policies {TOPIC}").text == "null\n"

        assert run(f"namespaces remove-offload-policies {NAMESPACE}").code == 0
        assert run(f"namespaces get-offload-policies {NAMESPACE}").text == "null\n"
        assert NAMESPACE not in {set_on for _, set_on in held(NAMESPACE).values()}


def test_retention_is_that_of_the_store(tool: PulsarAdmin, path: Path) -> None:
    """Policies of the namespace's directory and of the topic's; both limits, none, and 0, which has no meaning here."""
    make_topic(path, (10, 10))

    def held(directory: str) -> list[object]:
        shown = tierfs("--json", "config", directory, "retention_age", "retention_bytes", store=path).json["policy"]
        return [policy["value"] for policy in shown.values()]

    with running(tool, path) as (run, _):
        get = f"namespaces get-retention {NAMESPACE}"
        assert run(get).text == "null\n"
        assert run(f"namespaces set-retention {NAMESPACE} --time 3h --size 10G").code == 0
        assert run(get).json == {"retentionTimeInMinutes": 180, "retentionSizeInMB": 10240}
        assert held(NAMESPACE) == [3 * 3600, 10 * 1024**3]
        assert run(f"topics set-retention {TOPIC} --time -1 --size 5M").code == 0
        own = run(f"topicPolicies get-retention {TOPIC}").json
        assert own == {"retentionTimeInMinutes": -1, "retentionSizeInMB": 5}
        assert held("public/default/topic") == [None, 5 * 1024**2]
        assert run(f"topicPolicies remove-retention {TOPIC}").code == 0
        assert run(f"topics get-retention {TOPIC}").text == "null\n"
        applied = run(f"topicPolicies get-retention {TOPIC} --applied").json
        assert applied == {"retentionTimeInMinutes": 180, "retentionSizeInMB": 10240}

        refused = run(f"namespaces set-retention {NAMESPACE} --time 0 --size 0")
        assert (refused.code, "a store has no subscriptions" in refused.text) == (1, True), refused.text
        tierfs("-q", "config", NAMESPACE, "offload_after=2h", store=path)
        refused = run(f"namespaces set-retention {NAMESPACE} --time 1h --size -1")
        assert (refused.code, "set offload_after below retention_age" in refused.text) == (1, True), refused.text
        assert held(NAMESPACE) == [3 * 3600, 10 * 1024**3]
        assert run(f"namespaces remove-retention {NAMESPACE}").code == 0
        assert run(get).text == "null\n"


def test_retention_by_the_client_drops_the_oldest_ledgers(tool: PulsarAdmin, path: Path) -> None:
    make_topic(path, (700_000, 700_000, 700_000, 10))  # without the first two, less than the limit would be left
    tierfs("-q", "offload", store=path)
    with running(tool, path) as (run, _):
        assert run(f"topics set-retention {TOPIC} --time -1 --size 1M").code == 0
    (mnt := path.parent / "mnt").mkdir()
    tierfs("-q", "config", "background.lifetimes_every_s=0.2", store=path)
    tierfs("mount", mnt, store=path)
    try:
        topic = mnt / "public/default/topic"
        assert eventually(lambda: [int(file.name) for file in sorted(topic.iterdir())] == [2, 3, 4])
    finally:
        tierfs("umount", mnt, store=path)


def test_a_topic_is_terminated(tool: PulsarAdmin, path: Path) -> None:
    make_topic(path, (10, 10))
    with running(tool, path) as (run, _):
        for _ in range(2):  # repeating it succeeds
            assert run(f"topics terminate {TOPIC}").text == "Topic successfully terminated at 2:0:-1\n"
        assert run(f"topics stats-internal {TOPIC}").json["state"] == "Terminated"
        refused = tierfs("ledger", "append", "public/default/topic", store=path, stdin=b"more", check=False)
        assert "terminated" in refused.err
        missing = run("topics terminate persistent://public/default/none")
        assert (missing.code, "does not exist" in missing.text) == (1, True)


def test_mistakes_are_answered_with_a_reason(tool: PulsarAdmin, path: Path) -> None:
    make_topic(path, (10,))
    with running(tool, path) as (run, _):
        for command, reason in (
            (
                "topics stats-internal persistent://public/default/none",
                "persistent://public/default/none does not exist",
            ),
            ("namespaces set-offload-threshold public/none -s 1M", "namespace public/none does not exist"),
            ("topics list public/default", "not served by tierfs; supported: topics offload"),
            ("topics unload persistent://public/default/topic", "not served by tierfs"),
        ):
            printed = run(command)
            assert (printed.code, reason in printed.text) == (1, True), printed.text
        (path / "admin.token").write_text("another-token-of-enough-characters")
        assert "the bearer token is missing or wrong" in run(f"topics offload-status {TOPIC}").text
