"""The plan as one pass over everything there is: slow and plain, what the planner must agree with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tierfs.base.words.types import SegmentId
from tierfs.tiering.offload_queue import key_of
from tierfs.tiering.policy import DiskView, EvictAction, PendingObject, SegmentSummary


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions due now, most urgent first."""

    rolls: tuple[SegmentId, ...] = ()
    offloads: tuple[PendingObject, ...] = ()
    evictions: tuple[EvictAction, ...] = ()


def plan(segments: Sequence[SegmentSummary], disk: DiskView, now_ms: int, *, lag_counts: bool = True) -> Plan:
    """The next actions. Costs one pass over the segments that have local bytes.

    Without `lag_counts` the clock is not trusted: nothing is evicted because its lag has passed.
    """
    unoffloaded = sum(map(_unoffloaded_bytes, segments))
    pressed = unoffloaded > disk.high_unoffloaded_bytes
    return Plan(
        rolls=tuple(_rolls(segments, now_ms, unoffloaded - disk.high_unoffloaded_bytes)),
        offloads=tuple(_offloads(segments, now_ms, pressed=pressed)),
        evictions=tuple(_evictions(segments, disk.excess_bytes, now_ms if lag_counts else 0)),
    )


def _unoffloaded_bytes(segment: SegmentSummary) -> int:
    return segment.active_bytes + sum(pending.bytes for pending in segment.pending)


def _rolls(segments: Iterable[SegmentSummary], now_ms: int, excess_bytes: int) -> Iterator[SegmentId]:
    """Active chunks whose age has passed; under pressure also the largest, until what is complete suffices."""
    young: list[SegmentSummary] = []
    for segment in segments:
        excess_bytes -= sum(pending.bytes for pending in segment.pending)
        if not segment.active_since_ms:
            continue
        if now_ms - segment.active_since_ms >= segment.policy.chunk_age_s * 1000:
            excess_bytes -= segment.active_bytes
            yield segment.id
        else:
            young.append(segment)
    for segment in sorted(young, key=lambda segment: (-segment.active_bytes, segment.id)):
        if excess_bytes <= 0:
            return
        excess_bytes -= segment.active_bytes
        yield segment.id


def _offloads(segments: Iterable[SegmentSummary], now_ms: int, *, pressed: bool) -> list[PendingObject]:
    """Oldest first; under pressure whatever their age, and the largest and oldest first."""
    due = [
        pending for segment in segments for pending in segment.pending if pressed or _is_due(segment, pending, now_ms)
    ]
    return sorted(due, key=_largest if pressed else _oldest)


def _is_due(segment: SegmentSummary, pending: PendingObject, now_ms: int) -> bool:
    after_s = segment.policy.offload_after_s
    return after_s is not None and now_ms - pending.ended_ms >= after_s * 1000


def _oldest(pending: PendingObject) -> tuple[int, ...]:
    return pending.ended_ms, -pending.bytes, *key_of(pending)


def _largest(pending: PendingObject) -> tuple[int, ...]:
    return -pending.bytes, pending.ended_ms, *key_of(pending)


def _evictions(segments: Sequence[SegmentSummary], excess_bytes: int, now_ms: int) -> Iterator[EvictAction]:
    """Copies whose lag has passed; then, while the disk is too full, the ones that were cold first."""
    pressure = _pressure_cutoff(segments, excess_bytes, now_ms)
    for segment in segments:
        if segment.keeps_local or not segment.copies:
            continue
        cutoff = max(_lag_cutoff(segment, now_ms), pressure(segment))
        if segment.copies[0].cold_since_ms <= cutoff:
            yield EvictAction(segment.id, cutoff)


def _lag_cutoff(segment: SegmentSummary, now_ms: int) -> int:
    return now_ms - segment.policy.deletion_lag_s * 1000


def _pressure_cutoff(
    segments: Sequence[SegmentSummary], excess_bytes: int, now_ms: int
) -> Callable[[SegmentSummary], int]:
    """Return the cutoffs within the lag that free `excess_bytes` in all."""
    lagging: list[tuple[int, SegmentId, int]] = []
    for segment in segments:
        for copy in () if segment.keeps_local else segment.copies:
            if copy.cold_since_ms <= _lag_cutoff(segment, now_ms):
                excess_bytes -= copy.bytes
            else:
                lagging.append((copy.cold_since_ms, segment.id, copy.bytes))
    cutoffs: dict[SegmentId, int] = {}
    for cold_since_ms, segment_id, size in sorted(lagging) if excess_bytes > 0 else ():
        if excess_bytes <= 0:
            break
        excess_bytes -= size
        cutoffs[segment_id] = cold_since_ms
    return lambda segment: cutoffs.get(segment.id, 0)
