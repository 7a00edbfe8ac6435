"""Distributed writes on a test store: what executors upload and what the driver makes of it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

from tests.stores import TestStore
from tierfs.app.batches.job import BatchJobs, Written
from tierfs.app.batches.upload import SegmentUpload, UploadPlan
from tierfs.engine.journal.batch_markers import parse_name
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.batch_records import UploadedSegment
from tierfs.engine.metadata.tables import BATCHES, GARBAGE

APPLICATION = "nightly"


class Driver:
    """The jobs of one store, as a process of the driver has them."""

    def __init__(self, store: TestStore) -> None:
        self.store = store
        self.jobs = BatchJobs(store.metadata, store.cold_tier()[1])

    def begin(self, into: str = "out") -> UploadPlan:
        """A new job."""
        return self.jobs.begin(into)

    def upload(self, plan: UploadPlan, segments: Mapping[str, bytes], step_bytes: int = 3) -> list[UploadedSegment]:
        """One task per segment, each on an executor that was sent the plan and sends back the result."""
        sent: UploadPlan = pickle.loads(pickle.dumps(plan))
        return [
            pickle.loads(pickle.dumps(upload(self.store, sent, number, name, data, step_bytes)))
            for number, (name, data) in enumerate(segments.items())
        ]

    def commit(
        self, plan: UploadPlan, uploaded: list[UploadedSegment], version: int = 1, *, seal: bool = True
    ) -> Written:
        """Commit a job."""
        return self.jobs.commit(plan.job, APPLICATION, version, uploaded, seal=seal)

    def write(self, segments: Mapping[str, bytes], version: int = 1) -> Written:
        """A whole job."""
        plan = self.begin()
        return self.commit(plan, self.upload(plan, segments), version)


def upload(
    store: TestStore, plan: UploadPlan, partition: int, name: str, data: bytes, step_bytes: int = 3
) -> UploadedSegment:
    """Upload a segment as a task does, in writes of a few bytes."""
    with SegmentUpload(store.cold, plan, partition, name) as segment:
        for at in range(0, len(data), step_bytes):
            segment.write(data[at : at + step_bytes])
        return segment.finish()


def contents(store: TestStore) -> dict[str, bytes]:
    """Every segment with its bytes."""
    with store.metadata.read() as txn:
        root = directories.find(txn, "")
        assert root is not None
        found = [name for name, _ in directories.segments_below(txn, root, "")]
    return {name: store.read(name) for name in found}


def uploads(store: TestStore) -> set[str]:
    """Names below `uploads/`, without the job's, except for markers."""
    return {one.name.split("/", 2)[2] for one in store.cold.list("uploads/") if parse_name(one.name) is None}


def marked(store: TestStore) -> list[int]:
    """The versions that have a marker."""
    found = (parse_name(one.name) for one in store.cold.list("uploads/"))
    return sorted(one.version for one in found if one is not None)


def committed(store: TestStore) -> list[tuple[str, str, int]]:
    """Rows of `batches`: application, version, state."""
    with store.metadata.read() as txn:
        return [(row.application, row.batch, int(row.state)) for _, row in txn.scan(BATCHES)]


def garbage(store: TestStore) -> set[str]:
    """Names of objects that wait to be deleted."""
    with store.metadata.read() as txn:
        return {row.name for _, row in txn.scan(GARBAGE)}
