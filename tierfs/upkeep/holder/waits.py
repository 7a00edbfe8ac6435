"""What keeps bytes on the local disk: the rule, the time, the failure; of one object, and summed over a store.

One table of reasons serves `info`, `map`, `status`, `.tierfs/backlog` and the holder. It imports nothing of the work
itself, so that commands that only look start fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options import policy
from tierfs.base.options.precedence import Policies
from tierfs.base.words import names
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.types import ROOT_DIRECTORY, ReadPriority, SegmentId, SegmentKind, SegmentStatus, Tier
from tierfs.engine.metadata import chains, policies, sums
from tierfs.engine.metadata.holder_records import FailureRecord
from tierfs.engine.metadata.policies import PolicyCache
from tierfs.engine.metadata.store_ownership import owns_bucket
from tierfs.engine.metadata.sums import Sums
from tierfs.engine.metadata.tables import ENTRIES, FAILURES, POLICIES, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering import quota
from tierfs.upkeep.holder.failures import OFFLOAD, OWNER, PACK, QUOTA

_MS_PER_S = 1000

# Segments that a summary looks at, where policies differ between directories: half a second.
_MOST_SEGMENTS = 200_000

# Policies that move bytes to the cold tier.
_MOVERS = frozenset({"offload_after", "offload_above_bytes"})


class Wait(StrEnum):
    """The kind of a reason; JSON has it beside the words."""

    NO_COLD_TIER = "no-cold-tier"
    NOT_OWNER = "not-owner"
    OFF = "off"
    """No policy moves them."""
    LATER = "later"
    """A policy moves them, at a time to come."""
    SIZE = "size"
    """A policy moves them once there are more."""
    GROWING = "growing"
    UPLOADING = "uploading"
    DUE = "due"
    NOBODY = "nobody"
    """They are due, and no process does the work."""
    AWAY = "cold-tier-away"
    QUOTA = "quota"
    """They are due, and the cold tier holds as much as it may."""
    FAILED = "failed"
    PINNED = "pinned"
    UNPUBLISHED = "unpublished"
    UNKNOWN = "unknown"

    @property
    def moves(self) -> bool:
        """Whether the bytes will become cold by themselves, sooner or later."""
        return self not in (Wait.NO_COLD_TIER, Wait.NOT_OWNER, Wait.OFF)


class Cause(NamedTuple):
    """Why some bytes are where they are."""

    kind: Wait
    why: str
    until_ms: int = 0
    """Time at which it ends by itself; 0 for none."""


@dataclass(frozen=True, slots=True)
class BacklogReason:
    """Bytes of a store that are on its disk alone, for one reason."""

    kind: Wait
    why: str
    bytes: int


class Causes:
    """Reasons in one snapshot of a store."""

    def __init__(self, txn: ReadTransaction, now_ms: int, *, held: bool) -> None:
        """`held`: a process does the store's background work."""
        self._txn = txn
        self._now_ms = now_ms
        self.held = held

    def of_store(self) -> Cause | None:
        """Return why nothing of the store can become cold, if that is so."""
        if not self._txn.store.cold_location_id:
            return Cause(Wait.NO_COLD_TIER, "the store has no cold tier")
        if not owns_bucket(self._txn.store):
            return Cause(Wait.NOT_OWNER, "this store may not change its bucket")
        return None

    def of_pending(self, rules: Policies, ended_ms: int, failures: Sequence[str] = ()) -> Cause:
        """Return why bytes that were complete at a time are not cold yet; `failures` name those of their upload."""
        after_s, above = rules.values.offload_after_s, rules.values.offload_above_bytes
        if self.held and any(self.failure(what) is not None for what in failures):  # whatever made it due
            return self.due(failures)
        if after_s is not None:
            due_ms = ended_ms + after_s * _MS_PER_S
            if due_ms > self._now_ms:
                return Cause(Wait.LATER, told(rules, "offload_after"), due_ms)
            return self._full() or self.due((*failures, OWNER, PACK))
        other = "" if above is None else f", {told(rules, 'offload_above_bytes')}"
        why = f"{told(rules, 'offload_after')}: until the disk needs room{other}, or tierfs offload"
        return Cause(Wait.OFF if above is None else Wait.SIZE, why)

    def of_active(self, rules: Policies, since_ms: int, writer: str | None) -> Cause:
        """Return why the chunk that a segment ends with is not cold yet; `writer`: the process that appends now."""
        if rules.values.never_offloads:
            return self.of_pending(rules, 0)
        until_ms = since_ms + rules.values.chunk_age_s * _MS_PER_S
        if until_ms <= self._now_ms and not self.held:
            return self.due((OWNER,))
        now = f"{writer} appends to its chunk" if writer else "its chunk is not full yet"
        why = f"{now}: until {told(rules, 'chunk_bytes')} or {told(rules, 'chunk_age')}"
        return Cause(Wait.GROWING, why, until_ms)

    def of_copy(self, rules: Policies, cold_since_ms: int, failures: Iterable[str]) -> Cause:
        """Return why the local copy of bytes stays that have been cold since a time."""
        lag_s = rules.values.deletion_lag_s
        if rules.values.read_priority is ReadPriority.LOCAL_ONLY:
            return Cause(Wait.PINNED, told(rules, "read_priority"))
        if lag_s is None:
            why = f"{told(rules, 'deletion_lag')}: until the disk needs room, or tierfs evict"
            return Cause(Wait.OFF, why)
        until_ms = cold_since_ms + lag_s * _MS_PER_S
        if until_ms > self._now_ms:
            return Cause(Wait.LATER, told(rules, "deletion_lag"), until_ms)
        return self.due(failures)

    def due(self, failures: Iterable[str]) -> Cause:
        """Return why work that is due is not done: a failure, or nobody is there to do it."""
        row = next((row for what in failures if (row := self.failure(what)) is not None), None)
        if not self.held:
            before = "" if row is None else f"; it failed earlier: {row.error}"
            return Cause(Wait.NOBODY, f"it is due, but no holder is running: tierfs mount, or tierfs daemon{before}")
        if row is None:
            return Cause(Wait.DUE, "it is due, and runs next")
        if row.what == OWNER:
            return Cause(Wait.AWAY, f"it is due, but the cold tier cannot be used: {row.error}", row.next_try_ms)
        what = "small objects wait after a failure" if row.what == PACK else "it failed"
        return Cause(Wait.FAILED, f"{what}, {row.attempts} so far: {row.error}", row.next_try_ms)

    def _full(self) -> Cause | None:
        """Return why what is due does not fit into the cold tier, if that is so."""
        if not self._txn.host.cold_quota_bytes:
            return None
        use, row = quota.use_of(self._txn), self.failure(QUOTA)
        if use.keeps_out(row):
            return Cause(Wait.QUOTA, f"it is due, but the cold tier has {use}")
        return None

    def failure(self, what: str) -> FailureRecord | None:
        """Return the failure of some work, if it failed the last time."""
        return self._txn.get(FAILURES, what.encode())

    def backlog(self, totals: Sums) -> tuple[BacklogReason, ...]:
        """Return the bytes that are on this disk alone by reason, the most first; they add up to the sums.

        Costs the same however many segments there are, unless directories or segments have offload policies of their
        own, there are ledgers, or a wait of all bytes is over for some.
        """
        all_bytes = totals.pending_bytes + totals.growing_bytes
        whole = self.of_store()
        if not all_bytes:
            return ()
        if whole is not None:
            return (BacklogReason(whole.kind, whole.why, all_bytes),)
        by_cause = self._alike(totals) or self._by_segment(totals)
        rest = all_bytes - sum(by_cause.values())
        if rest > 0:
            unseen = Cause(Wait.UNKNOWN, f"not checked: after the first {_MOST_SEGMENTS:,} segments, or damaged")
            by_cause[unseen] = by_cause.get(unseen, 0) + rest
        rows = [BacklogReason(cause.kind, cause.why, size) for cause, size in self._failed(by_cause).items() if size]
        return tuple(sorted(rows, key=lambda row: -row.bytes))

    def _alike(self, totals: Sums) -> dict[Cause, int]:
        """Return the reasons if one rule holds for all segments, from the sums alone; else nothing."""
        if self._txn.count(ENTRIES.name):  # complete chunks of a ledger wait until it is closed: no sum tells them
            return {}
        for _, record in self._txn.scan(POLICIES):
            if record.target_id != ROOT_DIRECTORY and not _MOVERS.isdisjoint(record.settings):
                return {}
        rules = policies.of_directory(self._txn, ROOT_DIRECTORY)
        oldest_ms, after_s = self._txn.oldest_local_only_ms, rules.values.offload_after_s
        if after_s and (not oldest_ms or oldest_ms + after_s * _MS_PER_S <= self._now_ms):
            return {}  # some of them are due, and only their segments tell which
        cause = self.of_pending(rules, oldest_ms)
        return _sums(rules, cause, totals.pending_bytes, totals.growing_bytes)

    def _by_segment(self, totals: Sums) -> dict[Cause, int]:
        """Return the reasons from the records of segments; their chains are not read."""
        cache, own = PolicyCache(), {record.target_id for _, record in self._txn.scan(POLICIES)}
        rules: dict[int, _Rule] = {}
        parse, now_ms = SEGMENTS.codec.parse_or_none, self._now_ms
        for _, data in islice(self._txn.scan_raw(SEGMENTS.name), _MOST_SEGMENTS):
            row = parse(data)
            if row is None or not row.local.count:
                continue
            alone, growing = sums.here_alone(row)
            if alone and (row.kind or totals.lost_bytes):
                alone, growing = self._without_lost(row, alone, growing, totals)
            if not alone:
                continue
            target = row.id if row.id in own or row.parent_id == ROOT_DIRECTORY else row.parent_id
            rule = rules.get(target)
            if rule is None:
                rule = rules[target] = _Rule.of(self._txn, row, cache)
            rule.growing_bytes += growing
            ended_ms = row.sealed_ms if row.kind else row.modified_ms
            if ended_ms + rule.after_ms > now_ms:
                rule.later_bytes += alone - growing
            else:
                rule.due_bytes += alone - growing
        by_cause: dict[Cause, int] = {}
        for rule in rules.values():
            if rule.policies is not None:
                for cause, size in self._of_rule(rule, rule.policies):
                    by_cause[cause] = by_cause.get(cause, 0) + size
        return by_cause

    def _without_lost(self, row: Any, alone: int, growing: int, totals: Sums) -> tuple[int, int]:
        """Return the same of a ledger, which is open as a whole, and without bytes that are recorded as lost."""
        if totals.lost_bytes:
            chunks = chains.chunks(self._txn, SegmentId(row.id), Tier.COLD)
            alone = max(0, alone - sum(chunk.length for chunk in chunks if chunk.lost))
        open_ledger = row.kind == SegmentKind.LEDGER and row.status == SegmentStatus.OPEN
        return alone, alone if open_ledger else min(growing, alone)

    def _of_rule(self, rule: _Rule, policies: Policies) -> Iterator[tuple[Cause, int]]:
        yield from _sums(policies, self.of_pending(policies, 0), rule.due_bytes, rule.growing_bytes).items()
        yield from _sums(policies, self.of_pending(policies, self._now_ms), rule.later_bytes, 0).items()

    def _failed(self, by_cause: dict[Cause, int]) -> dict[Cause, int]:
        """Return the sums, with those bytes apart whose own upload failed."""
        due = next((cause for cause in by_cause if cause.kind is Wait.DUE), None)
        if due is None:
            return by_cause
        rows = (row for _, row in self._txn.scan(FAILURES, prefix=f"{OFFLOAD} ".encode()))
        failed = min(by_cause[due], sum(row.bytes for row in rows))
        other = Cause(Wait.FAILED, "it failed and is retried: see the stuck work")
        return {**by_cause, due: by_cause[due] - failed, other: failed}


def any_moves(txn: ReadTransaction) -> bool:
    """Return whether a policy of the root, a directory or a segment moves bytes. Reads the records of policies."""
    if not policies.of_directory(txn, ROOT_DIRECTORY).values.never_offloads:
        return True
    rows = (record.settings for _, record in txn.scan(POLICIES))
    return any(settings.get(key, policy.OFF) != policy.OFF for settings in rows for key in _MOVERS)


def longest_allowed_s(txn: ReadTransaction) -> int | None:
    """Return the longest time that any policy lets bytes wait to be cold; None where some wait without a time.

    Reads the records of policies, not those of segments.
    """
    if txn.count(ENTRIES.name):
        return None  # an open ledger waits until it is closed
    root = policies.of_directory(txn, ROOT_DIRECTORY).values
    afters_s, ages_s, sizes = [root.offload_after_s], [root.chunk_age_s], [root.offload_above_bytes]
    for _, record in txn.scan(POLICIES):
        for key, values in (("offload_after", afters_s), ("chunk_age", ages_s), ("offload_above_bytes", sizes)):
            if key in record.settings:
                values.append(policy.from_stored(key, record.settings[key]))  # type: ignore[arg-type]
    if any(size is not None for size in sizes):
        return None
    return max((after_s for after_s in afters_s if after_s is not None), default=0) + max(ages_s)


@dataclass(slots=True)
class _Rule:
    """The sums of segments with the same policies."""

    policies: Policies | None
    """None where they cannot be read, and in the trash, where nothing waits."""
    after_ms: int = 0
    due_bytes: int = 0
    later_bytes: int = 0
    growing_bytes: int = 0

    @classmethod
    def of(cls, txn: ReadTransaction, row: Any, cache: PolicyCache) -> _Rule:
        """Return what holds for a segment, and for others of its directory."""
        try:
            policies = cache.of(txn, row)
        except (TierfsError, ValueError):  # of damaged policies or directories; tierfs check names them
            return cls(None)
        if names.is_removed(row.name if row.parent_id == ROOT_DIRECTORY else policies.name):
            return cls(None)
        return cls(policies, (policies.values.offload_after_s or 0) * _MS_PER_S)


_GROWING = Cause(Wait.GROWING, "appended to: until chunk_bytes or chunk_age")


def _sums(rules: Policies, cause: Cause, pending_bytes: int, growing_bytes: int) -> dict[Cause, int]:
    """Return the sums by reason; a time differs between segments, and is not told of many."""
    without_time = cause._replace(until_ms=0)
    if rules.values.never_offloads:
        return {without_time: pending_bytes + growing_bytes}
    return {without_time: pending_bytes, _GROWING: growing_bytes}


def told(rules: Policies, key: str) -> str:
    """Return a policy as `config` has it: name, value and origin."""
    held = rules.effective(key)
    return f"{key} = {policy.format(key, held.value)} ({held.origin})"
