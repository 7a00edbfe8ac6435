"""Pass over what `append --skip` skips: the beginning of an input has to be what the segment ends with."""

from __future__ import annotations

from tierfs.app.compare import compare, members_before
from tierfs.app.inputs import InputSource
from tierfs.app.store import Store
from tierfs.base.words.errors import Conflict, InvalidRequest
from tierfs.base.words.names import as_word, printable
from tierfs.base.words.types import ByteRange, SegmentKind
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.segments import streams
from tierfs.engine.segments.append import require_offset
from tierfs.faces.cli.session import Session

_OTHER_INPUT = "if this is a different input, such as a log after its rotation, append it without --skip"


def pass_appended(
    session: Session, store: Store, name: str, source: InputSource, skip: int, expected_offset: int | None
) -> int:
    """Take the bytes to skip from the input; return the end of the segment, where the others go.

    Raises OffsetMismatch, and Conflict for an input with other bytes, or if none of them can be compared.
    """
    members = _members(store, name, skip)
    end, shown = members[-1].length if members else 0, printable(name)
    require_offset(name, expected_offset, end)
    if end < skip:
        raise Conflict(f"cannot skip {skip} bytes: {shown} has only {end}", remedy=_OTHER_INPUT)
    wanted = ByteRange(end - skip, end)
    done = compare(store, members, wanted, source)
    if (there := done.difference) is not None:
        raise Conflict(
            f"the input differs from {shown}: its bytes {there.start - wanted.start} to "
            f"{there.end - wanted.start} differ from bytes {there.start} to {there.end} of the segment",
            remedy=_OTHER_INPUT,
        )
    if done.taken_bytes < skip:
        raise Conflict(f"the input has {done.taken_bytes} bytes, fewer than --skip {skip}", remedy=_OTHER_INPUT)
    if not done.compared_bytes:
        rest = f"tail -c +{skip + 1} FILE | tierfs append --expect-offset {end} {as_word(name)}"
        raise Conflict(
            f"cannot compare the {skip} bytes to skip with {shown}: {done.why or 'they were dropped'}",
            remedy=f"if this is the same input, append its remaining bytes: {rest}; {_OTHER_INPUT}",
        )
    if done.compared_bytes < skip:
        session.note(
            f"compared only {done.compared_bytes} of the {skip} bytes to skip: {shown} no longer has the others"
        )
    return end


def _members(store: Store, name: str, skip: int) -> list[SegmentRecord]:
    """Return the segments of the stream that have the bytes to skip; none if there is no such segment."""
    with store.metadata.read() as txn:
        if directories.find(txn, name) is None:
            return []
        last = streams.newest(txn, directories.segment_by_name(txn, name))
        if last.kind is SegmentKind.LEDGER:
            raise InvalidRequest(f"{printable(name)} is a ledger", remedy="add entries: tierfs ledger append")
        return members_before(txn, last, last.length - skip)
