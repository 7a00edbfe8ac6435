"""adopt rocketmq: the file of each queue and type becomes a segment, at RocketMQ's own offsets.

Pure; every name is untrusted. Four layouts of RocketMQ's tiered storage are known and distinguished by the end of a
name. `...` is cluster/broker/topic/queue, in the two released ones with a hash of the cluster before or in it:

    .../{type}/seg-{base}/chunk-{position}         .../{type}/seg-{base}/segment              as proposed
    .../{type}-{base}/chunk-{position}             .../{type}-{base}-seg                      its variant
    .../{type}/seg-{base}/chunk/chunk-{position}   .../{type}/seg-{base}/segment/segment-0    the S3 plugin
    .../{TYPE}/{md5 of base, 8 digits}{base, 20 digits}                                       POSIX
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.protocol import StoredObject
from tierfs.tiering.adoption.plan import AdoptionPlan, ForeignExtent, LeftOut, add_runs, extent_of, offset, readable

# broker, topic, queue: the path of a file segment, in RocketMQ's terms.
_QUEUE_COMPONENTS = 3

_HASH_DIGITS = 8

_IN_SEGMENT = r"seg-(?P<base>[0-9]+)/"
_PATH = r"((?P<path>.+)/)?"
_TYPE = r"(?P<type>(?!seg-)[^/]+)"
_LAYOUTS = (
    re.compile(rf"{_PATH}{_TYPE}/{_IN_SEGMENT}(chunk/chunk-(?P<position>[0-9]+)|segment/segment-0)", re.DOTALL),
    re.compile(rf"{_PATH}{_TYPE}/{_IN_SEGMENT}(chunk-(?P<position>[0-9]+)|segment)", re.DOTALL),
    re.compile(rf"{_PATH}{_TYPE}-(?P<base>[0-9]+)(/chunk-(?P<position>[0-9]+)|-seg)", re.DOTALL),
)
REPLACED = "a chunk that its sealed file segment replaced"
NOT_WHOLE = "a sealed file segment that is shorter than its chunks"

_POSIX = re.compile(rf"{_PATH}(?P<type>[A-Z_]+)/(?P<hash>[0-9a-f]{{8}})(?P<base>[0-9]{{20}})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Queue:
    """One file of a queue: `broker/topic/queue/type`, as far as it is below the place's URL, and the path above it."""

    above: str
    path: str
    type: str

    @property
    def name(self) -> str:
        """Name of its segment, below the directory it is adopted into."""
        return f"{self.path}/{self.type}" if self.path else self.type


@dataclass(frozen=True, slots=True)
class Named:
    """The fields of one object's name."""

    queue: Queue
    base: int
    """Offset of RocketMQ's file segment in the queue's file."""
    position: int | None
    """Offset of the chunk in the file segment; None for the whole file segment, sealed."""
    doubt: str = ""
    """Description of a wrong hash in the name."""


def parse(name: str) -> Named | None:
    """Parse an object's name; None when it is not one of RocketMQ's."""
    for layout in _LAYOUTS:
        match = layout.fullmatch(name)
        if match is not None:
            position = offset(match["position"]) if match["position"] is not None else None
            if match["position"] is not None and position is None:
                return None
            return _named(match, position, _wrong_java_hash(match["path"] or ""))
    match = _POSIX.fullmatch(name)
    if match is None:
        return None
    return _named(match, None, _wrong_md5(match))


def java_hash(text: str) -> int:
    """Return Java's String.hashCode: over UTF-16 units, as a signed 32-bit number."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (value * 31 + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def md5_prefix(text: str) -> str:
    """Return the first 8 digits of a text's MD5, which spreads names over a file system's directories."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:_HASH_DIGITS]


def _named(match: re.Match[str], position: int | None, doubt: str) -> Named | None:
    base = offset(match["base"])
    if base is None:
        return None
    parts = (match["path"] or "").split("/")
    above, path = "/".join(parts[:-_QUEUE_COMPONENTS]), "/".join(parts[-_QUEUE_COMPONENTS:])
    return Named(Queue(above, path, match["type"]), base, position, doubt)


def _wrong_java_hash(path: str) -> str:
    """Describe a wrong cluster hash, with which the plugin's names begin; empty for names without one."""
    parts = path.split("/")[:-_QUEUE_COMPONENTS]
    if len(parts) < 2 or not re.fullmatch(r"-?[0-9]{1,10}", parts[-2]):
        return ""
    cluster, said = parts[-1], int(parts[-2])
    return "" if said == java_hash(cluster) else f"{said} is not the hash of cluster {cluster}"


def _wrong_md5(match: re.Match[str]) -> str:
    base = match["base"].lstrip("0") or "0"
    if match["hash"] != md5_prefix(base):
        return f"{match['hash']} is not the hash of offset {base}"
    above = (match["path"] or "").split("/")[:-_QUEUE_COMPONENTS]
    said, _, cluster = above[-1].partition("_") if above else ("", "", "")
    if re.fullmatch(r"[0-9a-f]{8}", said) and cluster and said != md5_prefix(cluster):
        return f"{said} is not the hash of cluster {cluster}"
    return ""


@dataclass(slots=True)
class _FileSegment:
    """One of RocketMQ's file segments: sealed as one object, or open as chunks, or both after a crash."""

    base: int
    sealed: list[StoredObject] = field(default_factory=list)
    chunks: list[tuple[int, StoredObject]] = field(default_factory=list)


def plan_rocketmq(plan: AdoptionPlan, listed: Iterable[StoredObject], into: str) -> None:
    """Plan each queue's file of one type as INTO/broker/topic/queue/type.

    It begins at the lowest base offset; after a hole a further segment begins, whose name ends in its offset. Other
    objects are left out.
    """
    queues: dict[Queue, dict[int, _FileSegment]] = defaultdict(dict)
    for stored in readable(plan, listed):
        named = parse(stored.name)
        if named is None:
            plan.left_out.append(LeftOut(stored.name, "not a name of RocketMQ's"))
            continue
        if named.doubt:
            plan.warnings.append(f"{stored.name}: {named.doubt}")
        segment = queues[named.queue].setdefault(named.base, _FileSegment(named.base))
        if named.position is None:
            segment.sealed.append(stored)
        else:
            segment.chunks.append((named.position, stored))
    for queue, segments in sorted(queues.items(), key=lambda item: (item[0].name, item[0].above)):
        _plan_queue(plan, queue, segments.values(), into)


def _plan_queue(plan: AdoptionPlan, queue: Queue, segments: Collection[_FileSegment], into: str) -> None:
    try:
        extents = [extent for segment in segments for extent in _extents(plan, segment)]
    except InvalidRequest as exc:
        plan.refused.append((f"{into}/{queue.name}", exc))
        return
    # A sealed file segment is final, and POSIX files are only appended to (PosixFileSegment, recoverFileSize).
    last = max(segments, key=lambda segment: segment.base)
    add_runs(plan, queue.name, extents, into, unfinished=bool(last.chunks))


def _extents(plan: AdoptionPlan, segment: _FileSegment) -> list[ForeignExtent]:
    """Return the extents of a file segment's objects in the queue's file: the sealed object replaces its chunks.

    RocketMQ seals by one multipart upload that copies all chunks (S3FileSegment.trySealFile), so a sealed object in a
    bucket is complete; remaining chunks are those it did not delete in time. A sealed object in a copy of the place may
    be there before all of its bytes are: chunks that reach farther count. Raises InvalidRequest for two sealed objects.
    """
    if not segment.sealed:
        return [extent_of(segment.base + position, chunk) for position, chunk in segment.chunks]
    if len(segment.sealed) > 1:
        both = " and ".join(printable(sealed.name) for sealed in segment.sealed[:2])
        raise InvalidRequest(f"{both} are both complete copies of one file segment")
    sealed = segment.sealed[0]
    chunks = ranges.runs(sorted(segment.chunks, key=lambda placed: placed[0]), _follows)
    farther = [placed for run in chunks if _end(run[-1]) > sealed.length_bytes for placed in run]
    kept = {chunk.name for _, chunk in farther}
    plan.left_out.extend(LeftOut(chunk.name, REPLACED) for _, chunk in segment.chunks if chunk.name not in kept)
    if farther:
        plan.warnings.append(f"{sealed.name}: it ends before its chunks, so it is incomplete; the chunks are used")
    begin = farther[0][0] if farther else sealed.length_bytes
    if not begin:
        plan.left_out.append(LeftOut(sealed.name, NOT_WHOLE))
    head = [extent_of(segment.base, sealed, segment.base + begin)] if begin else []
    return head + [extent_of(segment.base + position, chunk) for position, chunk in farther]


def _end(placed: tuple[int, StoredObject]) -> int:
    return placed[0] + placed[1].length_bytes


def _follows(run: Sequence[tuple[int, StoredObject]], chunk: tuple[int, StoredObject]) -> bool:
    return chunk[0] <= _end(run[-1])
