"""Contradictions: policies, and settings, that cannot work together, and those of which one does nothing.

The tables here are the only place that decides; docs/settings.md shows them row by row. What can never work is
refused: policies wherever one is set, at every place below it, and settings when they are read. What is only useless is
told, by `config` and `doctor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Generic, TypeVar

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options import policy
from tierfs.base.options.config import ReadSettings, Settings
from tierfs.base.options.precedence import Policies, SetBy
from tierfs.base.words import units
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import CRC_BLOCK_BYTES, Ack, Compression, ReadPriority

Subject = TypeVar("Subject")

_ARCHIVE_KEYS = ("archive_after", "archive_class")

_WAITS = "retention waits for an offload that never happens"
_WAITS_REMEDY = (
    "set offload_after or offload_above_bytes, or let retention delete bytes that were never cold: "
    "retention_needs_offload=no"
)


@dataclass(frozen=True, slots=True)
class Rule(Generic[Subject]):
    """Keys that contradict each other when `holds` is true."""

    keys: tuple[str, ...]
    holds: Callable[[Subject], bool]
    why: str
    remedy: str = ""
    """For what is refused; empty for what is only told."""

    @property
    def refused(self) -> bool:
        """Whether it can never work."""
        return bool(self.remedy)


def _not_below(threshold: int | None, limit: int | None) -> bool:
    return threshold is not None and limit is not None and threshold >= limit


def _never_offloads(policies: Policies) -> bool:
    return policies.values.never_offloads


def _waits_for_ever(limit: str) -> Callable[[Policies], bool]:
    def holds(policies: Policies) -> bool:
        waits = policies.values.retention_needs_offload and _never_offloads(policies)
        return waits and policies.effective(limit).value is not None

    return holds


def _is_set(policies: Policies, key: str) -> bool:
    return policies.effective(key).origin.set_by is not SetBy.BUILT_IN


def _reads(policies: Policies, priority: ReadPriority) -> bool:
    return policies.values.read_priority is priority


def _useless_without_cold_tier(key: str) -> Rule[Policies]:
    return Rule(
        (key,),
        lambda policies: not policies.has_cold_tier and _is_set(policies, key),
        "the store has no cold tier to offload to",
    )


POLICIES: tuple[Rule[Policies], ...] = (
    Rule(
        ("offload_after", "retention_age"),
        lambda policies: _not_below(policies.values.offload_after_s, policies.values.retention_age_s),
        "retention would delete bytes before they are offloaded",
        "set offload_after below retention_age",
    ),
    Rule(
        ("offload_above_bytes", "retention_bytes"),
        lambda policies: _not_below(policies.values.offload_above_bytes, policies.values.retention_bytes),
        "retention would delete bytes before enough have collected to be offloaded",
        "set offload_above_bytes below retention_bytes",
    ),
    Rule(("offload_after", "retention_age"), _waits_for_ever("retention_age"), _WAITS, _WAITS_REMEDY),
    Rule(("offload_after", "retention_bytes"), _waits_for_ever("retention_bytes"), _WAITS, _WAITS_REMEDY),
    Rule(
        ("read_priority",),
        lambda policies: not policies.has_cold_tier and _reads(policies, ReadPriority.OFFLOADED_ONLY),
        "the store has no cold tier to read from",
        "set another read_priority",
    ),
    Rule(
        ("ack",),
        lambda policies: not policies.has_cold_tier and policies.values.ack is Ack.COLD,
        "the store has no cold tier that could acknowledge an append",
        "set a cold tier: tierfs config cold.url=URL",
    ),
    Rule(
        ("offload_after", "offload_above_bytes"),
        lambda policies: (
            policies.has_cold_tier
            and policies.values.offload_after_s == 0
            and policies.values.offload_above_bytes is not None
        ),
        "everything is offloaded at once, so the size is never reached",
    ),
    Rule(
        ("read_priority", "offload_after"),
        lambda policies: _never_offloads(policies) and _reads(policies, ReadPriority.OFFLOADED_ONLY),
        "bytes cannot be read until tierfs offload makes them cold",
    ),
    Rule(
        ("read_priority", "deletion_lag"),
        lambda policies: _reads(policies, ReadPriority.LOCAL_ONLY) and _is_set(policies, "deletion_lag"),
        "local bytes are never evicted",
    ),
    Rule(
        ("object_bytes", "chunk_bytes"),
        lambda policies: (
            policies.values.object_bytes < policies.values.chunk_bytes and _is_set(policies, "object_bytes")
        ),
        "an object contains at least one whole chunk",
    ),
    Rule(
        ("chunk_age", "retention_age"),
        lambda policies: _not_below(policies.values.chunk_age_s, policies.values.retention_age_s),
        "bytes are kept until their chunk is complete",
    ),
    Rule(
        ("archive_after",),
        lambda policies: (
            policies.has_cold_tier
            and policies.values.archive_after_s is not None
            and policies.values.archive_class is None
        ),
        "nothing moves to the archive until archive_class is set",
    ),
    Rule(
        ("archive_after", "archive_class", "retention_age"),
        lambda policies: (
            policies.has_cold_tier
            and policies.values.archive_class is not None
            and _not_below(policies.values.archive_after_s, policies.values.retention_age_s)
        ),
        "retention deletes the objects before they move to the archive",
    ),
    *map(_useless_without_cold_tier, policy.TIERING_KEYS),
    Rule(
        ("compression",),
        lambda policies: not policies.has_cold_tier and policies.values.compression is not Compression.OFF,
        "the store has no cold tier to offload to",
    ),
    Rule(
        ("compression_level",),
        lambda policies: _is_set(policies, "compression_level") and not _is_set(policies, "compression"),
        "nothing is compressed until compression is set",
    ),
)


def _is_too_slow(key: str) -> Rule[Settings]:
    return Rule(
        (key,),
        lambda settings: 0 < attrgetter(key)(settings) < CRC_BLOCK_BYTES,
        "less than a block of 128 KiB a second",
        "set at least 128KiB, or 0 for no limit",
    )


SETTINGS: tuple[Rule[Settings], ...] = (
    *map(_is_too_slow, ("offload.bandwidth", "read.bandwidth", "read.user_bandwidth")),
    Rule(
        ("background.unoffloaded_watermark_percent", "background.high_watermark_percent"),
        lambda settings: settings.background.unoffloaded_watermark_percent > settings.background.high_watermark_percent,
        "bytes that cannot be evicted yet may use more of the disk than eviction allows",
        "set the first to at most the second",
    ),
    Rule(
        ("background.retry_first_s", "background.retry_longest_s"),
        lambda settings: settings.background.retry_first_s > settings.background.retry_longest_s,
        "the first pause is longer than the longest",
        "set the first to at most the second",
    ),
    Rule(
        ("cold.retry_base_s", "cold.retry_max_s"),
        lambda settings: settings.cold.retry_base_s > settings.cold.retry_max_s,
        "the first pause is longer than the longest",
        "set the first to at most the second",
    ),
    Rule(
        ("offload.relocate_min_bytes", "offload.relocate_max_bytes"),
        lambda settings: settings.offload.relocate_min_bytes > settings.offload.relocate_max_bytes,
        "no object size is within both limits, so nothing is relocated",
        "set the first to at most the second",
    ),
    Rule(
        ("cold.kms_key", "cold.encryption"),
        lambda settings: bool(settings.cold.kms_key) and not settings.cold.encryption.startswith("aws:kms"),
        "only aws:kms uses a key",
        "set cold.encryption=aws:kms, or no key",
    ),
    Rule(
        ("read.cache_directory", "read.cache_bytes"),
        lambda settings: bool(settings.read.cache_directory) and settings.read.cache_bytes == 0,
        "the disk cache is disabled while its size is 0",
    ),
    Rule(
        ("read.priority", "read.override_priority"),
        lambda settings: settings.read.priority is not None and settings.read.override_priority is not None,
        "the second setting applies",
    ),
    Rule(
        ("cold.read_timeout_s", "read.deadline_s"),
        lambda settings: settings.cold.read_timeout_s >= settings.read.deadline_s,
        "a read has no time for a retry",
    ),
    Rule(
        ("ack.delay_s", "ack.deadline_s"),
        lambda settings: settings.ack.delay_s >= settings.ack.deadline_s,
        "an append would fail before its object is sent",
    ),
    Rule(
        ("read.max_window_bytes", "read.budget_bytes"),
        lambda settings: settings.read.budget_bytes < settings.read.max_window_bytes != ReadSettings().max_window_bytes,
        "the memory budget limits the read-ahead",
    ),
    Rule(
        ("read.streams", "cold.requests_in_flight"),
        lambda settings: settings.read.streams > settings.cold.requests_in_flight,
        "fetches above the second limit wait",
    ),
)


def refuse(policies: Policies) -> None:
    """Raise InvalidRequest where policies can never work together."""
    for rule in POLICIES:
        if rule.refused and rule.holds(policies):
            raise InvalidRequest(
                f"policy of {printable(policies.name) or '/'}: {_told(rule, policies)}", remedy=rule.remedy
            )


def refuse_larger(policies: Policies, most_bytes: int) -> None:
    """Raise InvalidRequest where policies make larger objects than the cold tier can store; 0: it has no limit."""
    for key in ("chunk_bytes", "object_bytes"):
        held = policies.effective(key)
        assert isinstance(held.value, int)
        if 0 < most_bytes < held.value:
            largest = units.format_size(most_bytes)
            raise InvalidRequest(
                f"policy of {printable(policies.name) or '/'}: {key} {policy.format(key, held.value)} ({held.origin}): "
                f"the cold tier stores objects of at most {largest}",
                remedy=f"set {key} to at most {largest}",
            )


def refuse_archive(policies: Policies, why: str) -> None:
    """Raise InvalidRequest where policies move objects to the archive, which the cold tier cannot have: `why`."""
    held = [(key, policies.effective(key)) for key in _ARCHIVE_KEYS]
    parts = [f"{key} {policy.format(key, each.value)} ({each.origin})" for key, each in held if each.value is not None]
    if parts:
        raise InvalidRequest(
            f"policy of {printable(policies.name) or '/'}: {' with '.join(parts)}: {why}",
            remedy=f"correct that, or remove the policies {' and '.join(_ARCHIVE_KEYS)}",
        )


def useless(policies: Policies) -> Iterator[tuple[Rule[Policies], str]]:
    """Yield the rules by which a policy does nothing, and their text."""
    for rule in POLICIES:
        if not rule.refused and rule.holds(policies):
            yield rule, _told(rule, policies)


def _told(rule: Rule[Policies], policies: Policies) -> str:
    held = ((key, policies.effective(key)) for key in rule.keys)
    parts = (f"{key} {policy.format(key, held.value)} ({held.origin})" for key, held in held)
    return f"{' with '.join(parts)}: {rule.why}"


def refuse_settings(settings: Settings, where: str) -> None:
    """Raise InvalidRequest where settings can never work together; `where` they were read from begins the message."""
    for rule in SETTINGS:
        if rule.refused and rule.holds(settings):
            raise InvalidRequest(f"{where}: {_told_of_settings(rule, settings)}", remedy=rule.remedy)


def useless_settings(settings: Settings) -> Iterator[str]:
    """Yield why settings do nothing, a line each."""
    return (_told_of_settings(rule, settings) for rule in SETTINGS if not rule.refused and rule.holds(settings))


def overridden_settings(root: Policies) -> Iterator[tuple[str, str]]:
    """Yield why a setting of this host has no effect, and the command that removes the policy of the root over it."""
    for level in root.levels:
        if level.origin.set_by is not SetBy.SETTING:
            continue
        for key in level.values:
            held = root.effective(key)
            if held.origin.set_by is SetBy.DIRECTORY:
                policy_set = f"the policy {key} {policy.format(key, held.value)} ({held.origin})"
                yield f"{level.origin.name} has no effect: {policy_set} overrides it", f"tierfs config / {key}="


def _told_of_settings(rule: Rule[Settings], settings: Settings) -> str:
    parts = (f"{key} = {units.format_by_name(key, attrgetter(key)(settings))}" for key in rule.keys)
    return f"{' with '.join(parts)}: {rule.why}"
