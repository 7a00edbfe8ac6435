"""A store whose cold tier is a bucket with storage classes, and the bucket as another client sees it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tests import verbs
from tests.commands import Done, run, tierfs
from tests.conftest import Bucket
from tests.mount.conftest import append
from tierfs.app.store import open_store
from tierfs.engine.metadata.records import GarbageRecord, ObjectRecord
from tierfs.engine.metadata.tables import GARBAGE, OBJECTS

ARCHIVED = 13
"""Exit code of a read of bytes that must be restored first."""

SMALL, LARGE, IN_PARTS = 5_000, 5 << 20, 17 << 20
"""Bytes of a file that is packed, of one that is an object of its own, and of one that is sent in parts."""


@dataclass(frozen=True)
class ArchivedStore:
    """One store."""

    path: Path
    bucket: Bucket

    @classmethod
    def new(cls, path: Path, bucket: Bucket) -> ArchivedStore:
        """Make one, empty."""
        endpoint, name = bucket
        tierfs("init", "--bucket", f"s3://{name}/p", "--endpoint-url", endpoint.endpoint_url, store=path)
        return cls(path, bucket)

    def run(self, *words: object, check: bool = True) -> Done:
        """Run a command."""
        return tierfs(*words, store=self.path, check=check)

    def fill(self, data: Mapping[str, bytes]) -> None:
        """Write segments that are cold alone."""
        with open_store(self.path) as store:
            for name, content in data.items():
                append(store, name, content, seal=True)
            verbs.offload(store)
            verbs.evict(store)

    def read(self, name: str) -> bytes:
        """Return the bytes of a segment."""
        code, out, err = run(["cat", name], {**os.environ, "TIERFS_STORE": str(self.path)}, b"")
        assert (code, err) == (0, b""), err
        return out

    def records(self) -> list[ObjectRecord]:
        """Return the records of all objects."""
        with open_store(self.path) as store, store.metadata.read() as txn:
            return [record for _, record in txn.scan(OBJECTS)]

    def garbage(self) -> list[GarbageRecord]:
        """Return the objects that wait to be deleted."""
        with open_store(self.path) as store, store.metadata.read() as txn:
            return [record for _, record in txn.scan(GARBAGE)]

    def classes(self) -> dict[str, str]:
        """Return the storage classes of the bucket's objects with bytes of segments, by name."""
        endpoint, name = self.bucket
        with closing(endpoint.client()) as client:
            listed = client.list_objects_v2(Bucket=name)["Contents"]
        names = {entry["Key"].removeprefix("p/"): entry["StorageClass"] for entry in listed}
        return {key: kept_as for key, kept_as in names.items() if key.startswith(("segments/", "packs/", "uploads/"))}
