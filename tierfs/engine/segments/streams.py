"""Streams: a segment that policy seals continues in its successor, in one sequence of offsets (design §7).

The first segment has the stream's name, later ones `name.<start offset>`. Each begins at the end offset of the one
before, so that an offset of the stream is used once. Members are linked both ways by id: removing one, by command or
by retention, links its neighbours to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from operator import attrgetter

from tierfs.base.options.policy import Policy
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest, Sealed
from tierfs.base.words.types import EntryKind, Inode, SegmentId, SegmentKind, SegmentStatus
from tierfs.engine.metadata import changes, directories, policies
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction


def is_limited(policy: Policy) -> bool:
    """Return whether policy ends segments at all."""
    return policy.seal_bytes is not None or policy.seal_age_s is not None


def is_long(segment: SegmentRecord, policy: Policy) -> bool:
    """Return whether the segment has reached `seal_bytes`, counted from its first offset."""
    return policy.seal_bytes is not None and segment.length - segment.first_offset >= policy.seal_bytes


def is_old(segment: SegmentRecord, policy: Policy, now_ms: int) -> bool:
    """Return whether `seal_age` has passed since the segment's first byte."""
    if policy.seal_age_s is None or segment.length == segment.first_offset:
        return False
    return now_ms - segment.began_ms >= policy.seal_age_s * 1000


def may_end(segment: SegmentRecord) -> bool:
    """Return whether policy may seal the segment; ledgers are closed instead (ledgers.py), without a successor.

    One that grows from a foreign layout has no successor: its next bytes are not appends.
    """
    return segment.kind is SegmentKind.BYTES and not segment.sealed and not segment.grows_from


def newest(txn: ReadTransaction, segment: SegmentRecord) -> SegmentRecord:
    """Return the stream's last member from `segment` on; it is sealed by policy only if its successor is gone."""
    while (following := successor(txn, segment)) is not None:
        segment = following
    return segment


def successor(txn: ReadTransaction, segment: SegmentRecord) -> SegmentRecord | None:
    """Return the member after a segment that policy sealed, or None."""
    if segment.status is not SegmentStatus.SEALED_BY_POLICY or not segment.successor_id:
        return None
    return directories.segment(txn, SegmentId(segment.successor_id))


def predecessor(txn: ReadTransaction, segment: SegmentRecord) -> SegmentRecord | None:
    """Return the member before a segment, or None."""
    return directories.segment(txn, SegmentId(segment.predecessor_id)) if segment.predecessor_id else None


def go_on(txn: WriteTransaction, segment: SegmentRecord) -> SegmentRecord | None:
    """Seal a segment by policy and create its successor; None, and no change, if the name would be too long.

    Create the successor again if the segment is already sealed by policy and its successor was deleted.
    """
    from tierfs.engine.segments import create, sealed_record

    name = _successor_name(txn, segment)
    if name is None:
        return None
    following = create.add(
        txn,
        SegmentRecord(
            id=SegmentId(txn.allocate_id()),
            parent_id=segment.parent_id,
            name=name,
            inode=Inode(txn.allocate_id()),
            kind=segment.kind,
            start_offset=segment.length,
            length=segment.length,
            first_offset=segment.length,
            stream_name=segment.stream,
            predecessor_id=segment.id,
        ),
    )
    policies.inherit_from(txn, following.id, segment.id)
    sealed_record.write(txn, segment, successor_id=following.id)
    return following


def to_append(txn: WriteTransaction, name: str, kind: SegmentKind) -> SegmentRecord:
    """Return the segment to which appends of this name go, made if it is missing. Raises as Engine.open_writer."""
    from tierfs.engine.segments import create

    ledger = kind is SegmentKind.LEDGER
    entry = directories.must_find(txn, name, "ledger") if ledger else directories.find(txn, name)
    if entry is None:
        return create.create(txn, name)
    if entry.kind is EntryKind.DIRECTORY:
        raise directories.not_a_segment(name)
    segment = newest(txn, directories.segment_by_name(txn, name))
    if segment.kind is not kind:
        if segment.kind is SegmentKind.LEDGER:
            raise InvalidRequest(f"{names.printable(name)} is a ledger", remedy="add entries: tierfs ledger append")
        raise InvalidRequest(f"{names.printable(name)} is not a ledger", remedy="add bytes: tierfs append")
    if not segment.sealed:
        return segment
    following = go_on(txn, segment) if segment.status is SegmentStatus.SEALED_BY_POLICY else None
    if following is None:
        shown = names.printable(name)
        elsewhere = f"tierfs unseal {names.as_word(name)}, or append elsewhere"
        remedy = "append to its managed ledger" if ledger else elsewhere
        raise Sealed(f"cannot append to {shown}: it is {'closed' if ledger else 'sealed'}", remedy=remedy)
    return following


def unlink(txn: WriteTransaction, gone: SegmentRecord) -> None:
    """Link the members before and after a segment that is being removed to each other."""
    before, after = predecessor(txn, gone), successor(txn, gone)
    if before is not None and before.successor_id == gone.id:
        changes.rewrite(txn, replace(before, successor_id=after.id if after is not None else 0))
    if after is not None and after.predecessor_id == gone.id:
        changes.rewrite(txn, replace(after, predecessor_id=before.id if before is not None else 0))


def relink(txn: WriteTransaction, back: SegmentRecord) -> None:
    """Link a segment that was restored between the members of its stream that are there now.

    Its place is found by offsets, as neighbours may have been removed or restored since. Without a place, as another
    segment has it, the segment stands alone.
    """
    before, after = _neighbours(txn, back)
    linked = replace(back, predecessor_id=before.id if before else 0, successor_id=after.id if after else 0)
    if linked != back:
        changes.rewrite(txn, linked)
    if before is not None:
        changes.rewrite(txn, replace(before, successor_id=back.id))
    if after is not None:
        changes.rewrite(txn, replace(after, predecessor_id=back.id))


def _neighbours(txn: ReadTransaction, back: SegmentRecord) -> tuple[SegmentRecord | None, SegmentRecord | None]:
    before = _first_living(txn, back.predecessor_id, attrgetter("predecessor_id"))
    after = _first_living(txn, back.successor_id, attrgetter("successor_id"))
    if before is not None:
        after = successor(txn, before)
        while after is not None and after.first_offset < back.first_offset:
            before, after = after, successor(txn, after)
    elif after is not None:
        before = predecessor(txn, after)
        while before is not None and before.first_offset > back.first_offset:
            before, after = predecessor(txn, before), before
    fits = _continues(before, back) and _continues(back, after)
    return (before, after) if fits else (None, None)


def _first_living(
    txn: ReadTransaction, segment_id: int, following: Callable[[SegmentRecord], int]
) -> SegmentRecord | None:
    """Return the first member that is not in the trash: those that are there still know their neighbours."""
    while segment_id:
        if (living := directories.living_segment(txn, SegmentId(segment_id))) is not None:
            return living
        removed = directories.segment(txn, SegmentId(segment_id))
        segment_id = 0 if removed is None else following(removed)
    return None


def _continues(before: SegmentRecord | None, after: SegmentRecord | None) -> bool:
    """Return whether a stream may go on from one member to the next; None is its end."""
    if before is None or after is None:
        return True
    return before.status is SegmentStatus.SEALED_BY_POLICY and before.length <= after.first_offset


def _successor_name(txn: ReadTransaction, segment: SegmentRecord) -> str | None:
    """Return the first free name, or None if it is too long: a user may have created a segment of that name."""
    for name in _candidates(f"{segment.stream}.{segment.length}"):
        try:
            names.split(directories.path_of(txn, segment.parent_id, name))
        except InvalidRequest:
            return None
        if directories.lookup(txn, segment.parent_id, name) is None:
            return name
    return None


def _candidates(name: str) -> Iterator[str]:
    yield name
    for number in count(1):
        yield f"{name}.{number}"
