"""Finds the losses of a stream since an offset was reached, and where it continues. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from tierfs.base.bytes import recoveries
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.joins import Join
from tierfs.base.words import names
from tierfs.base.words.names import printable
from tierfs.pipeline.reader.stream_batch import StreamStretch
from tierfs.pipeline.reader.stream_plan import ListedSegment, StreamOffset, recovered_in


@dataclass(frozen=True, slots=True)
class JoinedAway:
    """The end of a segment that was concatenated to one that the stream does not read."""

    name: str
    target: str
    length: int

    def unread(self, position: int) -> list[str]:
        """Return the loss if it was not read to its end."""
        if position >= self.length:
            return []
        name, target = printable(self.name) or "with unknown name", printable(self.target)
        return [
            f"segment {name}, read up to {position} of {self.length}, was concatenated to {target}, which is not read"
        ]


@dataclass(frozen=True, slots=True)
class MovedAway:
    """A segment that still exists, but not where the stream reads."""

    path: str
    """Its full name; in the trash that of before."""
    removed: str = ""
    """The name of what was removed, the segment or a directory above it; nothing outside of the trash."""

    def unread(self, position: int) -> list[str]:
        """Return the loss: bytes may follow at any time."""
        name = printable(self.path)
        if self.removed:
            return [
                f"segment {name}, read up to {position}, was deleted: its later bytes are not read "
                f"(it is in the trash: tierfs restore {names.as_word(self.removed)})"
            ]
        return [f"a segment, read up to {position}, was renamed to {name}, which is not read: so are its later bytes"]


Elsewhere: TypeAlias = Mapping[int, JoinedAway | MovedAway]


def reconcile(
    start: StreamOffset,
    listed: Sequence[ListedSegment],
    store_id: str,
    next_id: int,
    before: Sequence[ListedSegment] = (),
    elsewhere: Elsewhere | None = None,
) -> tuple[StreamOffset, list[str]]:
    """Return the offset to continue from, and the losses since `start` was reached, a sentence each.

    `before`: an earlier list, which names the deleted segments. `elsewhere`: segments that are not listed, or were
    joined to others which are not.
    """
    if start.store != store_id:
        fresh = StreamOffset(store_id, start.read, bytes=start.bytes)
        return fresh, [f"the checkpoint belongs to store {start.store}, not to this store, {store_id}"]
    if start.done >= next_id:
        return replace(start, done=next_id - 1), [
            f"the store is older than the checkpoint: it has no segment number {start.done} yet"
        ]
    by_birth = {segment.birth: segment for segment in listed}
    kept, lost, recovered = dict(start.open), list(_changed_again(start, listed)), start.recovered
    if any(_was_recovered(start, segment) for segment in listed):
        recovered = recovered_in(start, listed)  # so that it is told once
    followed = {join.birth for segment in listed for join in segment.joins}
    for birth, position in start.open.items():
        segment = by_birth.get(birth)
        if segment is None and birth in followed:
            continue  # the rest of it is read in the segment that has it now
        if segment is None and elsewhere is not None and birth in elsewhere:
            del kept[birth]
            lost += elsewhere[birth].unread(position)
        elif segment is None:
            name = next((printable(old.path) for old in before if old.birth == birth), f"number {birth}")
            lost.append(f"segment {name}, read up to {position}, was deleted: its later bytes are not read")
            del kept[birth]
        elif position < segment.start:
            lost.append(
                f"segment {printable(segment.path)} now starts at {segment.start}, but was read up to {position}"
            )
            kept[birth] = segment.start
        elif (end := recoveries.end_since(segment.recoveries, start.recovered)) is not None and position > end:
            lost.append(
                f"segment {printable(segment.path)} was read up to {position}, and recovered up to {end}: "
                "the bytes after it were lost, and others may have been appended there"
            )
            kept[birth], recovered = end, recovered_in(start, listed)
        elif position > segment.length:
            lost.append(
                f"segment {printable(segment.path)} now ends at {segment.length}, but was read up to {position}"
            )
            kept[birth] = segment.length
    is_same = kept == start.open and recovered == start.recovered
    return (start if is_same else replace(start, open=kept, recovered=recovered)), lost


def overwritten(end: StreamOffset, parts: Sequence[StreamStretch]) -> list[str]:
    """Return the losses of a batch that is read again, a sentence each: where it was, others may have been appended."""
    ends = ((part, recoveries.end_since(part.listed.recoveries, end.recovered)) for part in parts)
    return [
        f"bytes {part.start} to {part.end} of a batch are lost: a recovery found segment {printable(part.listed.path)} "
        f"up to {kept} alone"
        for part, kept in ends
        if kept is not None and part.end > kept
    ]


def _was_recovered(start: StreamOffset, segment: ListedSegment) -> bool:
    """Return whether a recovery did not find all of a sealed segment that was read to its end before.

    One whose bytes and seal are all in the bucket has no number of a recovery.
    """
    is_finished = segment.birth <= start.done and segment.birth not in start.open
    return is_finished and segment.sealed and recoveries.last(segment.recoveries) > start.recovered


def _was_unsealed(start: StreamOffset, join: Join, position: int) -> bool:
    """Return whether a source was finished, and unsealed after that, and is ahead of a position in its target."""
    is_finished = join.birth <= start.done and join.birth not in start.open
    return is_finished and join.end > position and join.unsealed_id > start.unsealed


def _appended_before(join: Join, target: ListedSegment) -> str:
    name, path = printable(join.name) or "with unknown name", printable(target.path)
    return (
        f"segment {name} was unsealed after its end was read, and concatenated to {path}: appended bytes are not read"
    )


def _changed_again(start: StreamOffset, listed: Sequence[ListedSegment]) -> Iterator[str]:
    """Return finished segments that were opened again: unsealed, or restored while open; or recovered shorter.

    They are told even if they are sealed again, or were joined to others.
    """
    for segment in listed:
        if segment.birth > start.done or segment.birth in start.open:
            position = start.open.get(segment.birth, segment.start)
            joins = (join for join in segment.joins if _was_unsealed(start, join, position))
            yield from (_appended_before(join, segment) for join in joins)
            continue
        path = printable(segment.path)
        if not segment.sealed:
            yield f"segment {path} was unsealed after its end was read, or restored: appended bytes are not read"
        elif segment.unsealed_id > start.unsealed:
            yield f"segment {path} was unsealed, or restored, and sealed again: appended bytes are not read"
        elif _was_recovered(start, segment):
            yield f"segment {path} was read to its end, and recovered up to {segment.length}: bytes of it were lost"
