"""Foreign objects in a bucket or files in a directory, and a proof that they did not change."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.commands import Done, run
from tests.conftest import Bucket
from tierfs.app.store import open_store
from tierfs.engine.metadata.tables import CHUNKS, DIRENTS, GARBAGE, LOCATIONS, OBJECTS

Files = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class ForeignBucket:
    """A bucket somebody else writes."""

    bucket: Bucket

    @property
    def options(self) -> tuple[str, ...]:
        return ("--endpoint-url", self.bucket[0].endpoint_url, "--region", self.bucket[0].region)

    def url(self, prefix: str = "") -> str:
        return f"s3://{self.bucket[1]}/{prefix}"

    def put(self, files: Files) -> None:
        endpoint, name = self.bucket
        client = endpoint.client()

        def put_one(item: tuple[str, bytes]) -> None:
            client.put_object(
                Bucket=name, Key=item[0], Body=item[1], Metadata={"made-by": "them"}, Tagging="owner=somebody else"
            )

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(put_one, files.items()))
        client.close()

    def state(self) -> dict[str, Any]:
        """Everything that can be seen of every object, multipart uploads included."""
        endpoint, name = self.bucket
        client = endpoint.client()
        found: dict[str, Any] = {"uploads": client.list_multipart_uploads(Bucket=name).get("Uploads", [])}
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=name):
            for one in page.get("Contents", []):
                head = client.head_object(Bucket=name, Key=one["Key"])
                tags = client.get_object_tagging(Bucket=name, Key=one["Key"])["TagSet"]
                found[one["Key"]] = (head["ETag"], head["LastModified"], head["Metadata"], tags)
        client.close()
        return found

    def below(self, prefix: str) -> dict[str, Any]:
        """The state of what lies below a prefix."""
        return {key: value for key, value in self.state().items() if key.startswith(prefix)}


def write_files(root: Path, files: Files) -> Path:
    """Make files, with the directories on their way."""
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def directory_state(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything that can be seen of every file and directory, but for access times."""
    found: dict[str, tuple[object, ...]] = {}
    for path in [root, *root.rglob("*")]:
        status = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        xattrs = tuple(os.listxattr(path, follow_symlinks=False))
        found[str(path)] = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_mode, data, xattrs)
    return found


def states(done: Done) -> dict[str, str]:
    """What a command with --json says of each segment."""
    return {one["segment"]: one["state"] for one in done.json["segments"]}


def counts(store: Path) -> dict[bytes, int]:
    """The numbers of rows."""
    with open_store(store) as opened, opened.metadata.read() as txn:
        return {table.name: txn.count(table.name) for table in (DIRENTS, OBJECTS, CHUNKS, GARBAGE, LOCATIONS)}


def cat(store: Path, name: str) -> bytes:
    """The bytes of a segment, whatever they are."""
    code, out, err = run(["--store", str(store), "cat", name], dict(os.environ), b"")
    assert (code, err) == (0, b"")
    return out
