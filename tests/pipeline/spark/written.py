"""The state after distributed writes: segments, objects and records, in a store with a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import verbs
from tests.commands import tierfs
from tests.conftest import Bucket
from tierfs.app import store
from tierfs.app.setup.create import init_store
from tierfs.base.words.object_names import is_about_job
from tierfs.base.words.types import MIB, ROOT_DIRECTORY
from tierfs.engine.chunkstore.place import Place, Server
from tierfs.engine.metadata import directories, policies
from tierfs.engine.metadata.tables import GARBAGE, OBJECTS


@contextmanager
def bucket_store(path: Path, rgw_bucket: Bucket) -> Iterator[store.Store]:
    """A store in a bucket, with objects of 1 MiB."""
    endpoint, bucket = rgw_bucket
    place = Place.parsed(f"s3://{bucket}/p", Server(endpoint.endpoint_url))
    init_store(path, place)
    with store.open_store(path) as opened:
        with opened.metadata.write() as txn:
            policies.put(txn, ROOT_DIRECTORY, {"object_bytes": str(MIB), "read_priority": "local-first"})
        yield opened


def segments(store: store.Store, path: str = "") -> list[str]:
    """The segments in a directory, if it is there."""
    with store.metadata.read() as txn:
        root = directories.find(txn, path)
        return [] if root is None else sorted(name for name, _ in directories.segments_below(txn, root, path))


def read(store: store.Store, name: str) -> bytes:
    """The bytes of a segment."""
    found = bytearray()
    verbs.cat(store, name, None, None, None, found.extend)
    return bytes(found)


def contents(store: store.Store, path: str = "") -> list[bytes]:
    """The bytes of each segment in a directory."""
    return sorted(read(store, name) for name in segments(store, path))


def uploads(store: store.Store) -> set[str]:
    """Return the names below `uploads/` except manifests and markers."""
    location_id = store.cold_location_id
    assert location_id is not None
    return {one.name for one in store.storage_of(location_id).list("uploads/") if not is_about_job(one.name)}


def named(store: store.Store) -> set[str]:
    """Objects of tasks that records name."""
    with store.metadata.read() as txn:
        return {record.name for _, record in txn.scan(OBJECTS) if record.name.startswith("uploads/")}


def garbage(store: store.Store) -> set[str]:
    """Objects that the next collection deletes."""
    with store.metadata.read() as txn:
        return {record.name for _, record in txn.scan(GARBAGE)}


def assert_nothing_else_is_there(store: store.Store) -> None:
    """The bucket holds what is named and no more, once garbage is gone, and `check` agrees."""
    verbs.collect(store, grace_s=0)
    assert uploads(store) == named(store)
    assert tierfs("check", "--read", store=store.path).code == 0
