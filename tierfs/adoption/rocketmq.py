"""adopt rocketmq: the file of each queue and type is a segment, at RocketMQ's own offsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tierfs.adoption.plan import Extent, LeftOut, Plan, readable
from tierfs.adoption.rocketmq_names import Queue, parse
from tierfs.adoption.runs import add_runs
from tierfs.chunkstore.protocol import StoredObject
from tierfs.errors import InvalidRequest
from tierfs.names import printable


@dataclass(slots=True)
class _FileSegment:
    """One of RocketMQ's file segments: sealed as one object, or open as chunks, or both after a crash."""

    base: int
    sealed: list[StoredObject] = field(default_factory=list)
    chunks: list[tuple[int, StoredObject]] = field(default_factory=list)


def plan_rocketmq(plan: Plan, found: Iterable[StoredObject], into: str) -> None:
    """Each queue's file of one type becomes INTO/broker/topic/queue/type.

    It begins at the first base offset there is; behind a hole a further segment begins, whose name ends in
    its offset. What is no object of RocketMQ is left out.
    """
    queues: dict[Queue, dict[int, _FileSegment]] = defaultdict(dict)
    for one in readable(plan, found):
        named = parse(one.name)
        if named is None:
            plan.left_out.append(LeftOut(one.name, "not a name of RocketMQ's"))
            continue
        if named.doubt:
            plan.warnings.append(f"{one.name}: {named.doubt}")
        segment = queues[named.queue].setdefault(named.base, _FileSegment(named.base))
        if named.position is None:
            segment.sealed.append(one)
        else:
            segment.chunks.append((named.position, one))
    for queue, segments in sorted(queues.items(), key=lambda item: (item[0].name, item[0].above)):
        _plan_queue(plan, queue, segments.values(), into)


def _plan_queue(plan: Plan, queue: Queue, segments: Iterable[_FileSegment], into: str) -> None:
    try:
        extents = [extent for segment in segments for extent in _extents(plan, segment)]
    except InvalidRequest as exc:
        plan.refused.append((f"{into}/{queue.name}", exc))
        return
    add_runs(plan, queue.name, extents, into)


def _extents(plan: Plan, segment: _FileSegment) -> list[Extent]:
    """Where a file segment's objects lie in the queue's file: the sealed object wins over chunks it replaced.

    RocketMQ seals by one multipart upload that copies all chunks, so a sealed object is always complete;
    chunks are what it did not come to delete. Raises InvalidRequest for two sealed objects.
    """
    if not segment.sealed:
        return [_extent(segment.base + position, one) for position, one in segment.chunks]
    if len(segment.sealed) > 1:
        both = " and ".join(printable(sealed.name) for sealed in segment.sealed[:2])
        raise InvalidRequest(f"{both} are both all of one file segment")
    sealed = segment.sealed[0]
    for position, one in segment.chunks:
        replaced = position + one.length_bytes <= sealed.length_bytes
        why = "a chunk that its sealed file segment replaced" if replaced else "a chunk beyond its sealed file segment"
        plan.left_out.append(LeftOut(one.name, why))
    return [_extent(segment.base, sealed)]


def _extent(start_offset: int, one: StoredObject) -> Extent:
    return Extent(start_offset, one.length_bytes, one)
