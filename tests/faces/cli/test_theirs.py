"""Names of settings of Pulsar, RocketMQ and Pravega: the answer to each can be typed, and the page has them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tierfs.app.setup import place_settings, theirs
from tierfs.base.options import policy, settings

PAGE = Path(__file__).parents[3] / "docs/coming-from.md"
OURS = {*policy.KEYS, *settings.names(), *(f"cold.{key}" for key in place_settings.KEYS)}


def test_every_name_leads_to_a_setting_or_a_reason() -> None:
    rows = theirs.table().values()
    assert [row.name for row in rows if row.ours and row.ours not in OURS] == []
    assert [row.name for row in rows if not (row.ours or row.why)] == []
    assert {row.system for row in rows} == set(theirs.System)


def test_the_page_has_every_name_and_no_other() -> None:
    written = re.findall(r"^\| `([\w.]+)` \| .+? \| (?:`([\w.]+)`|nothing) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert written == [(row.name, row.ours, row.why or "–") for row in theirs.table().values()]


@pytest.mark.parametrize(
    ("name", "value", "typed"),
    [
        ("managedLedgerOffloadAutoTriggerSizeThresholdBytes", "10737418240", "/ offload_above_bytes=10GiB"),
        ("managedLedgerOffloadAutoTriggerSizeThresholdBytes", "0", "/ offload_above_bytes=0"),
        ("managedledgeroffloadthresholdinbytes", "-1", "/ offload_above_bytes=off"),
        ("managedLedgerOffloadDeletionLagMs", "14400000", "/ deletion_lag=4h"),
        ("managedLedgerOffloadDeletionLagMs", "1", "/ deletion_lag=1s"),
        ("managedLedgerDataReadPriority", "tiered-storage-first", "/ read_priority=offloaded-first"),
        ("managedLedgerOffloadedReadPriority", "BOOKKEEPER_FIRST", "/ read_priority=local-first"),
        ("tieredStorageLevel", "FORCE", "/ read_priority=offloaded-first"),
        ("tieredStorageLevel", "fast", "/ read_priority=VALUE"),
        ("retentionTimeInMinutes", "0", "/ retention_age=VALUE"),
        ("retentionTimeInMinutes", "-1", "/ retention_age=off"),
        ("retentionSizeInMB", "1024", "/ retention_bytes=1GiB"),
        ("retentionSizeInMB", "much", "/ retention_bytes=VALUE"),
        ("managedLedgerMaxEntriesPerLedger", "50000", "/ ledger_entries=50000"),
        ("s3ManagedLedgerOffloadBucket", "pulsar", "cold.url=s3://pulsar"),
        ("s3.bucket", "", "cold.url=s3://BUCKET/PREFIX"),
        ("storage.garbage.collection.delay.seconds", "60", "offload.grace_s=1min"),
        ("tieredStoreFileReservedTime", "72", "/ retention_age=3d"),
        ("s3Region", "x; rm -r /", "'cold.region=x; rm -r /'"),
    ],
)
def test_a_value_is_written_as_it_is_here(name: str, value: str, typed: str) -> None:
    assert theirs.remedy(name, value).endswith(f": tierfs config {typed}")


def test_no_credential_is_repeated() -> None:
    secrets = [row for row in theirs.table().values() if row.ours == "cold.profile"]
    assert len(secrets) > 8
    assert [row.name for row in secrets if "geheim" in theirs.remedy(row.name, "geheim")] == []


@pytest.mark.parametrize("row", theirs.table().values(), ids=lambda row: row.name)
def test_any_value_is_answered(row: theirs.Theirs) -> None:
    for value in ("", "-", "-1", "9" * 400, "ü", "\0", "1e9", "0.3"):
        assert row.name in theirs.remedy(row.name, value, "some where")
