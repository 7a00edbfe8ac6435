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
    recoveries: tuple[int, ...] = ()

    def unread(self, position: int, recovered: int) -> list[str]:
        """Return the loss if it was not read to its end, or not what was there then; `recovered`: as of the offset."""
        end = recoveries.end_since(self.recoveries, recovered)
        position = position if end is None else min(position, end)
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

    def unread(self, position: int, _recovered: int) -> list[str]:
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
    if any(_was_recovered(start, segment) or any(_joined_after(start, segment)) for segment in listed):
        recovered = recovered_in(start, listed)  # so that it is told once
    followed = {join.birth: join for segment in listed for join in segment.joins}
    for birth, position in start.open.items():
        segment = by_birth.get(birth)
        if segment is None and birth in followed:
            # The rest of it is read in the segment that has it now.
            join = followed[birth]
            end = recoveries.end_since(join.recoveries, start.recovered)
            if end is not None and position > end and not join.is_of_several:
                lost.append(_recovered(_named(join), position, end))
                kept[birth], recovered = end, recovered_in(start, listed)
            continue
        if segment is None and elsewhere is not None and birth in elsewhere:
            del kept[birth]
            lost += elsewhere[birth].unread(position, start.recovered)
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
            lost.append(_recovered(printable(segment.path), position, end))
            kept[birth], recovered = end, recovered_in(start, listed)
        elif position > segment.length:
            lost.append(
                f"segment {printable(segment.path)} now ends at {segment.length}, but was read up to {position}"
            )
            kept[birth] = segment.length
    is_same = kept == start.open and recovered == start.recovered
    return (start if is_same else replace(start, open=kept, recovered=recovered)), lost


def _recovered(path: str, position: int, end: int) -> str:
    return (
        f"segment {path} was read up to {position}, and recovered up to {end}: "
        "the bytes after it were lost, and others may have been appended there"
    )


def overwritten(end: StreamOffset, parts: Sequence[StreamStretch]) -> list[str]:
    """Return the losses of a batch that is read again, a sentence each: where it was, others may have been appended."""
    return [
        f"bytes {part.start} to {part.end} of a batch are lost: a recovery found segment {path} up to {kept} alone"
        for part in parts
        for path, kept in _overwritten(part, end.recovered)
    ]


def _overwritten(part: StreamStretch, recovered: int) -> Iterator[tuple[str, int]]:
    """Yield the segments of which a recovery after those that an offset knows lost bytes of a stretch, and their ends.

    They are the segment itself, and those that were joined to it.
    """
    segment = part.listed
    kept = recoveries.end_since(segment.recoveries, recovered)
    if kept is not None and part.end > kept and not _was_joined_behind(part, kept):
        yield printable(segment.path), kept
    for join in segment.joins:
        kept = recoveries.end_since(join.recoveries, recovered)
        if kept is None:
            continue
        end = join.start + kept - join.source_start
        if max(part.start, end) < min(part.end, join.end) and not _was_joined_behind(part, end, join):
            yield _named(join), kept


def _was_joined_behind(part: StreamStretch, end: int, but: Join | None = None) -> bool:
    """Return whether a stretch was read in a segment that was joined behind the end that a recovery found."""
    joins = (join for join in part.listed.joins if join is not but)
    return any(end <= join.start <= part.start and part.end <= join.end for join in joins)


def _named(join: Join) -> str:
    return printable(join.name) or "with unknown name"


def _was_recovered(start: StreamOffset, segment: ListedSegment) -> bool:
    """Return whether a recovery did not find all of a sealed segment that was read to its end before.

    One whose bytes and seal are all in the bucket has no number of a recovery.
    """
    is_finished = segment.birth <= start.done and segment.birth not in start.open
    return is_finished and segment.sealed and recoveries.last(segment.recoveries) > start.recovered


def _finished_ahead(start: StreamOffset, target: ListedSegment) -> Iterator[Join]:
    """Yield the sources of a target, not finished itself, that were finished, and are ahead of the position in it."""
    if target.birth <= start.done and target.birth not in start.open:
        return
    position = start.open.get(target.birth, target.start)
    for join in target.joins:
        if join.end > position and join.birth <= start.done and join.birth not in start.open:
            yield join


def _joined_after(start: StreamOffset, target: ListedSegment) -> Iterator[Join]:
    """Yield those of them of which a recovery did not find all."""
    return (join for join in _finished_ahead(start, target) if recoveries.last(join.recoveries) > start.recovered)


def _changed_before(start: StreamOffset, target: ListedSegment) -> Iterator[str]:
    """Yield the losses of sources that were finished, and changed before they were joined to a target."""
    path = printable(target.path)
    for join in _finished_ahead(start, target):
        if join.unsealed_id > start.unsealed:
            yield (
                f"segment {_named(join)} was unsealed after its end was read, and concatenated to {path}: "
                "appended bytes are not read"
            )
    for join in _joined_after(start, target):
        end = recoveries.end_since(join.recoveries, start.recovered)
        yield (
            f"segment {_named(join)} was read to its end, recovered up to {end}, and concatenated to {path}: "
            "bytes of it were lost"
        )


def _changed_again(start: StreamOffset, listed: Sequence[ListedSegment]) -> Iterator[str]:
    """Return finished segments that were opened again: unsealed, or restored while open; or recovered shorter.

    They are told even if they are sealed again, or were joined to others.
    """
    for segment in listed:
        if segment.birth > start.done or segment.birth in start.open:
            yield from _changed_before(start, segment)
            continue
        path = printable(segment.path)
        if not segment.sealed:
            yield f"segment {path} was unsealed after its end was read, or restored: appended bytes are not read"
        elif segment.unsealed_id > start.unsealed:
            yield f"segment {path} was unsealed, or restored, and sealed again: appended bytes are not read"
        elif _was_recovered(start, segment):
            end = recoveries.end_since(segment.recoveries, start.recovered)
            yield f"segment {path} was read to its end, and recovered up to {end}: bytes of it were lost"
