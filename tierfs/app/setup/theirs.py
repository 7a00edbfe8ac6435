"""Names of settings of Pulsar, RocketMQ and Pravega, and the setting or policy that does the same here.

The table is what `config` answers from when such a name is typed, and what docs/coming-from.md shows. The names are of
Pulsar (broker.conf, policies of namespaces, PIP-17), of RocketMQ (MessageStoreConfig, and the proposal of its S3
backend), and of Pravega (config.properties).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from math import ceil
from typing import Any

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options import policy
from tierfs.base.options.policy import KEYS
from tierfs.base.words import units
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import as_word
from tierfs.base.words.types import MIB, ReadPriority

# RocketMQ's TieredStorageLevel; Pulsar's names are read by ReadPriority itself.
_LEVELS = {
    "disable": ReadPriority.LOCAL_ONLY,
    "not_in_disk": ReadPriority.LOCAL_FIRST,
    "not_in_mem": ReadPriority.LOCAL_FIRST,
    "force": ReadPriority.OFFLOADED_FIRST,
}

_BY_PLACE = "it is part of the URL of the cold tier: tierfs config cold.url=URL"
_NO_CREDENTIALS = "credentials are in ~/.aws or in the environment, never here; a profile may assume a role"
_ADAPTS = "the maximum of the read-ahead, which adapts itself"

# Each stands for all drivers, and with the prefix of one: managedLedgerOffloadBucket, s3ManagedLedgerOffloadBucket.
_PULSAR_DRIVERS = ("managedLedgerOffload", "s3ManagedLedgerOffload", "gcsManagedLedgerOffload")


class System(StrEnum):
    """A system whose names are known."""

    PULSAR = "Pulsar"
    ROCKETMQ = "RocketMQ"
    PRAVEGA = "Pravega"


class Notation(StrEnum):
    """How a value is written there."""

    BYTES = "bytes"
    MEBIBYTES = "MB"
    MILLISECONDS = "ms"
    SECONDS = "s"
    MINUTES = "min"
    HOURS = "h"
    PRIORITY = "a read priority"
    BUCKET = "a bucket"
    AS_HERE = "as here"


_BYTES_EACH = {Notation.BYTES: 1, Notation.MEBIBYTES: MIB}
_SECONDS_EACH = {Notation.MILLISECONDS: 0.001, Notation.SECONDS: 1, Notation.MINUTES: 60, Notation.HOURS: 3600}


@dataclass(frozen=True, slots=True)
class Theirs:
    """One name of another system."""

    system: System
    name: str
    ours: str
    """The policy, or the setting (with a dot in its name); empty where none is needed."""
    notation: Notation = Notation.AS_HERE
    why: str = ""
    """Of a name without a counterpart: what happens here; of others: the difference."""

    def value(self, text: str) -> str:
        """Return a value of theirs as it is written here; empty where it says nothing here."""
        text = text.strip()
        if self.notation is Notation.BUCKET:
            return f"s3://{text}" if text and "://" not in text else text
        if self.notation is Notation.PRIORITY:
            return _priority(text)
        number = units.decimal(text)
        if self.notation is Notation.AS_HERE or number is None:
            negative = text.startswith("-") and units.decimal(text[1:]) is not None
            return units.OFF if negative else text if self.notation is Notation.AS_HERE else ""
        if self.notation in _BYTES_EACH:
            return units.format_size(int(number * _BYTES_EACH[self.notation]))
        seconds = number * _SECONDS_EACH[self.notation]
        # Policies are of whole seconds, and a lag of a part of one is not none.
        return units.format_duration(ceil(seconds) if self.ours in KEYS else round(seconds, 3))


def _priority(text: str) -> str:
    level = _LEVELS.get(text.lower())
    if level is not None:
        return level
    try:
        return ReadPriority(text)
    except ValueError:
        return ""


_PULSAR = (
    ("managedLedgerOffloadAutoTriggerSizeThresholdBytes", "offload_above_bytes", Notation.BYTES),
    ("managedLedgerOffloadThresholdInBytes", "offload_above_bytes", Notation.BYTES),
    ("managedLedgerOffloadThresholdInSeconds", "offload_after", Notation.SECONDS),
    ("managedLedgerOffloadAutoTriggerTimeThresholdSeconds", "offload_after", Notation.SECONDS),
    ("offloadSizeInMB", "offload_above_bytes", Notation.MEBIBYTES),
    ("offloadTimeInMinutes", "offload_after", Notation.MINUTES),
    ("managedLedgerOffloadDeletionLagMs", "deletion_lag", Notation.MILLISECONDS),
    ("managedLedgerOffloadDeletionLagInMillis", "deletion_lag", Notation.MILLISECONDS),
    ("managedLedgerDataReadPriority", "read_priority", Notation.PRIORITY),
    ("managedLedgerOffloadedReadPriority", "read_priority", Notation.PRIORITY),
    ("tieredReadPriority", "read_priority", Notation.PRIORITY),
    ("defaultRetentionTimeInMinutes", "retention_age", Notation.MINUTES),
    ("retentionTimeInMinutes", "retention_age", Notation.MINUTES),
    ("defaultRetentionSizeInMB", "retention_bytes", Notation.MEBIBYTES),
    ("retentionSizeInMB", "retention_bytes", Notation.MEBIBYTES),
    ("managedLedgerMaxEntriesPerLedger", "ledger_entries"),
    ("managedLedgerMaxSizePerLedgerMbytes", "seal_bytes", Notation.MEBIBYTES),
    ("managedLedgerMaxLedgerRolloverTimeMinutes", "seal_age", Notation.MINUTES),
    ("managedLedgerMinLedgerRolloverTimeMinutes", "", Notation.MINUTES, "a ledger is closed as soon as a limit is met"),
    ("managedLedgerOffloadMaxThreads", "offload.objects_in_parallel"),
    ("managedLedgerOffloadReadThreads", "", Notation.AS_HERE, "the number of parallel reads adapts to the link"),
    ("managedLedgerOffloadPrefetchRounds", "", Notation.AS_HERE, "the read-ahead adapts itself"),
    ("managedLedgerOffloadDriver", "", Notation.AS_HERE, _BY_PLACE),
    ("offloadersDirectory", "", Notation.AS_HERE, "tierfs has no plug-ins to load"),
    ("fileSystemURI", "cold.url", Notation.AS_HERE),
    ("fileSystemProfilePath", "", Notation.AS_HERE, _BY_PLACE),
    ("s3ManagedLedgerOffloadCredentialId", "cold.profile", Notation.AS_HERE, _NO_CREDENTIALS),
    ("s3ManagedLedgerOffloadCredentialSecret", "cold.profile", Notation.AS_HERE, _NO_CREDENTIALS),
    ("s3ManagedLedgerOffloadRole", "cold.profile", Notation.AS_HERE, _NO_CREDENTIALS),
    ("s3ManagedLedgerOffloadRoleSessionName", "cold.profile", Notation.AS_HERE, _NO_CREDENTIALS),
    ("gcsManagedLedgerOffloadServiceAccountKeyFile", "cold.profile", Notation.AS_HERE, _NO_CREDENTIALS),
    ("managedLedgerExtraConfigurations", "", Notation.AS_HERE, "tierfs has no plug-ins that use them"),
)

_PULSAR_DRIVER_NAMES = (
    ("Bucket", "cold.url", Notation.BUCKET),
    ("Region", "cold.region"),
    ("ServiceEndpoint", "cold.endpoint_url"),
    ("MaxBlockSizeInBytes", "offload.ledger_block_bytes", Notation.BYTES),
    ("ReadBufferSizeInBytes", "read.max_window_bytes", Notation.BYTES, _ADAPTS),
)

_ROCKETMQ = (
    ("tieredStorageLevel", "read_priority", Notation.PRIORITY),
    ("tieredStoreFilePath", "cold.url", Notation.AS_HERE),
    ("tieredBackendServiceProvider", "", Notation.AS_HERE, _BY_PLACE),
    ("tieredStoreCommitLogMaxSize", "object_bytes", Notation.BYTES),
    ("tieredStoreConsumeQueueMaxSize", "object_bytes", Notation.BYTES),
    ("commitLogRollingInterval", "chunk_age", Notation.HOURS),
    ("commitLogRollingMinimumSize", "", Notation.BYTES, "small chunks share an object: offload.pack_below_bytes"),
    ("tieredStoreFileReservedTime", "retention_age", Notation.HOURS),
    ("tieredStoreGroupCommitSize", "ack.pool_bytes", Notation.BYTES),
    ("tieredStoreGroupCommitTimeout", "ack.delay_s", Notation.MILLISECONDS),
    ("tieredStoreMaxFallBehindSize", "background.unoffloaded_watermark_percent", Notation.BYTES, "a share of the disk"),
    ("tieredStoreCrcCheckEnable", "", Notation.AS_HERE, "every byte is compared with its CRC32C before it is served"),
    ("readAheadCacheEnable", "", Notation.AS_HERE, "the read-ahead adapts itself"),
    ("readAheadMessageSizeThreshold", "read.max_window_bytes", Notation.BYTES, _ADAPTS),
    ("readAheadCacheSizeThresholdRate", "read.budget_bytes", Notation.BYTES, "bytes, not a share of the memory"),
    ("readAheadCacheExpireDuration", "", Notation.MILLISECONDS, "fetched bytes are kept until their memory is needed"),
    ("objectStoreEndpoint", "cold.endpoint_url"),
    ("objectStoreBucket", "cold.url", Notation.BUCKET),
    ("objectStoreAccessKey", "cold.profile", Notation.AS_HERE, _NO_CREDENTIALS),
    ("objectStoreSecretKey", "cold.profile", Notation.AS_HERE, _NO_CREDENTIALS),
    ("s3Region", "cold.region"),
    ("s3Bucket", "cold.url", Notation.BUCKET),
    ("s3AccessKey", "cold.profile", Notation.AS_HERE, _NO_CREDENTIALS),
    ("s3SecretAccessKey", "cold.profile", Notation.AS_HERE, _NO_CREDENTIALS),
    ("s3ChunkSize", "chunk_bytes", Notation.BYTES),
    ("readaheadChunkNum", "read.max_window_bytes", Notation.BYTES, f"{_ADAPTS}; bytes, not chunks"),
    ("s3ClientThreadNum", "cold.parts_in_parallel"),
)

_PRAVEGA = (
    ("pravegaservice.storage.impl.name", "", Notation.AS_HERE, _BY_PLACE),
    ("s3.bucket", "cold.url", Notation.BUCKET),
    ("s3.prefix", "", Notation.AS_HERE, "it is the rest of the URL: tierfs config cold.url=s3://BUCKET/PREFIX"),
    ("s3.connect.config.uri", "cold.endpoint_url"),
    ("s3.connect.config.region", "cold.region"),
    ("s3.connect.config.access.key", "cold.profile", Notation.AS_HERE, _NO_CREDENTIALS),
    ("s3.connect.config.secret.key", "cold.profile", Notation.AS_HERE, _NO_CREDENTIALS),
    ("s3.connect.config.role", "cold.profile", Notation.AS_HERE, _NO_CREDENTIALS),
    ("s3.noneMatch.enable", "", Notation.AS_HERE, "the server's support is tested by: tierfs doctor"),
    ("filesystem.root", "cold.url", Notation.AS_HERE),
    ("hdfs.connect.uri", "cold.url", Notation.AS_HERE),
    ("writer.flush.threshold.bytes", "chunk_bytes", Notation.BYTES),
    ("writer.flush.threshold.milliseconds", "chunk_age", Notation.MILLISECONDS),
    ("writer.rollover.size.bytes.max", "object_bytes", Notation.BYTES),
    ("storage.defrag.inline.enable", "offload.consolidate_chunks", Notation.AS_HERE, "a number of chunks; 0 is off"),
    ("storage.concat.size.bytes.min", "", Notation.BYTES, "the parts that a server copies determine it"),
    ("storage.concat.size.bytes.max", "object_bytes", Notation.BYTES),
    ("storage.appends.enable", "", Notation.AS_HERE, "cold objects never grow: they are joined into larger ones"),
    ("storage.garbage.collection.delay.seconds", "offload.grace_s", Notation.SECONDS),
    ("storage.garbage.collection.concurrency.max", "cold.requests_in_flight"),
    ("storage.journal.snapshot.update.count.max", "offload.checkpoint_entries"),
    ("storage.truncate.relocate.enable", "offload.relocate_dead_percent", Notation.AS_HERE, "a percentage; 100 is off"),
    ("storage.truncate.relocate.percent.min", "offload.relocate_dead_percent"),
    ("storage.truncate.relocate.size.bytes.min", "offload.relocate_min_bytes", Notation.BYTES),
    ("storage.truncate.relocate.size.bytes.max", "offload.relocate_max_bytes", Notation.BYTES),
    ("storage.safe.size.bytes.max", "cold.quota_bytes", Notation.BYTES),
    ("storage.self.check.enable", "", Notation.AS_HERE, "every byte is compared with its CRC32C before it is served"),
)


@cache
def table() -> Mapping[str, Theirs]:
    """Return all names of theirs by their lower case, grouped by system."""
    drivers = [(prefix + name, *rest) for name, *rest in _PULSAR_DRIVER_NAMES for prefix in _PULSAR_DRIVERS]
    systems: dict[System, Sequence[tuple[Any, ...]]] = {
        System.PULSAR: (*_PULSAR, *drivers),
        System.ROCKETMQ: _ROCKETMQ,
        System.PRAVEGA: _PRAVEGA,
    }
    rows = [Theirs(system, *row) for system, names in systems.items() for row in names]
    return {row.name.lower(): row for row in rows}


def remedy(name: str, value: str = "", path: str | None = None) -> str:
    """Return what to type for a name of the table and its value, empty for none."""
    row = table()[name.lower()]
    if not row.ours:
        return f"{row.name} of {row.system} needs no setting here: {row.why}"
    place = f"{as_word(path or '/')} " if row.ours in KEYS else ""
    ours, written = row.ours, "" if row.why else row.value(value)
    if ours in KEYS and written:
        try:
            policy.parse(ours, written)
        except InvalidRequest:
            written = ""  # of a value that cannot be: it is no better said in another unit
    shown = "s3://BUCKET/PREFIX" if row.notation is Notation.BUCKET else "VALUE"
    typed = as_word(f"{ours}={written}") if written else f"{ours}={shown}"
    difference = f" ({row.why})" if row.why else ""
    return f"{row.name} of {row.system} is {ours} here{difference}: tierfs config {place}{typed}"
