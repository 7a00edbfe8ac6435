"""The bucket's copy of a ledger's rows: an object `ledgers/...` beside the one that Pulsar reads.

The journal does not carry these rows, two bytes and more per entry: each checkpoint would hold all of them. A recovery
and a replica read the copy; where it is missing, the rows are rebuilt by reading the ledger's object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import AttemptId, SegmentId
from tierfs.engine.metadata import frames
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.ledger_records import EntryRun
from tierfs.engine.metadata.records import RECORD_VERSION
from tierfs.engine.metadata.tables import ENTRIES

ENTRIES_PREFIX = "ledgers/"

# Up to a million entries: 2 to 5 MiB, where a part may have 8.
_RUNS_PER_PART = 256


def object_name(segment_id: SegmentId, epoch: int, attempt: AttemptId) -> str:
    """Return the name of the copy; never used twice."""
    return f"{ENTRIES_PREFIX}entries-{segment_id}-e{epoch}-{attempt}"


def encode(store_id: str, segment_id: SegmentId, runs: Iterable[EntryRun], path: str = "") -> bytes:
    """Return the object's bytes: parts, each framed as the journal's objects are.

    `path` proves, where a copy of the bucket dropped user metadata, that the ledger's objects are the store's own.
    """
    out = bytearray()
    part = pb.EntriesPart(version=RECORD_VERSION, store_id=store_id, segment_id=segment_id, path=path)
    for run in runs:
        part.runs.append(ENTRIES.codec.to_message(run))  # type: ignore[arg-type]
        if len(part.runs) == _RUNS_PER_PART:
            out += frames.frame(part)
            part.ClearField("path")
            del part.runs[:]
    if part.runs or not out:
        out += frames.frame(part)
    return bytes(out)


def decode(file: frames.Seekable, name: str, segment_id: SegmentId) -> Iterator[EntryRun]:
    """Yield the runs in order. Raises DataLoss naming the object when it is damaged or of another ledger."""
    entry_id = offset = None
    for part in frames.messages(file, name, frames.parse_entries_part):
        if part.segment_id != segment_id:
            raise DataLoss(f"{name} is of ledger {part.segment_id}, not {segment_id}")
        for message in part.runs:
            run = ENTRIES.codec.from_message(message)
            run.check()
            if entry_id is not None and (run.first_entry_id, run.payload_start) != (entry_id, offset):
                raise DataLoss(f"{name}: entry {entry_id} is missing")
            entry_id, offset = run.end_entry_id, run.payload_end
            yield run


def first_part(file: frames.Seekable, name: str) -> pb.EntriesPart:
    """Return the first part of a copy. Raises DataLoss naming the object when it has none, or a damaged one."""
    part = next(frames.messages(file, name, frames.parse_entries_part), None)
    if part is None:
        raise frames.damaged(name, "it is empty")
    return part
