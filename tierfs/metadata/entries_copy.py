"""The copy of a ledger's rows of `entries` in the bucket: an object `ledgers/...` beside what Pulsar reads.

The journal does not carry these rows, two bytes and more per entry: each checkpoint would hold all of them. A recovery
and a replica take them from here; where the copy is missing, they are found by reading the ledger's object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tierfs.errors import DataLoss
from tierfs.metadata import journal
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.ledger_records import EntryRun
from tierfs.metadata.records import RECORD_VERSION
from tierfs.metadata.tables import ENTRIES
from tierfs.types import AttemptId, SegmentId

ENTRIES_PREFIX = "ledgers/"

_RUNS_PER_PART = 256
"""Up to a million entries: 2 to 5 MiB, where a part may have 8."""


def object_name(segment_id: SegmentId, epoch: int, attempt: AttemptId) -> str:
    """Name of the copy; never used twice."""
    return f"{ENTRIES_PREFIX}entries-{segment_id}-e{epoch}-{attempt}"


def encode(store_id: str, segment_id: SegmentId, runs: Iterable[EntryRun]) -> bytes:
    """The object's bytes: parts, each framed as the journal's objects are."""
    out = bytearray()
    part = pb.EntriesPart(version=RECORD_VERSION, store_id=store_id, segment_id=segment_id)
    for run in runs:
        part.runs.append(ENTRIES.codec.to_message(run))  # type: ignore[arg-type]
        if len(part.runs) == _RUNS_PER_PART:
            out += journal.frame(part)
            del part.runs[:]
    if part.runs or not out:
        out += journal.frame(part)
    return bytes(out)


def decode(file: journal.Readable, name: str, segment_id: SegmentId) -> Iterator[EntryRun]:
    """The runs, in order. Raises DataLoss naming the object for damage, and for another ledger's."""
    entry_id = offset = None
    while (framed := journal.read_framed(file, name)) is not None:
        part = journal.parse_entries_part(framed, name)
        if part.segment_id != segment_id:
            raise DataLoss(f"{name} is of ledger {part.segment_id}, not {segment_id}")
        for message in part.runs:
            run = ENTRIES.codec.from_message(message)
            run.check()
            if entry_id is not None and (run.first_entry_id, run.payload_start) != (entry_id, offset):
                raise DataLoss(f"{name}: entry {entry_id} is missing")
            entry_id, offset = run.end_entry_id, run.payload_end
            yield run
