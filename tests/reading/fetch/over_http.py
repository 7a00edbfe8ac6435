"""A store's objects behind signed URLs of a plain HTTP server: real sockets, and answers that are counted."""

from __future__ import annotations

import random
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import unquote

from tests.reading.fetch.chaotic_http import RangeServer, serving
from tests.stores import TestStore
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.chunkstore.s3.location import S3Location
from tierfs.chunkstore.s3.storage import S3Storage
from tierfs.config import ColdSettings
from tierfs.metadata.records import LocationRecord
from tierfs.metrics import NullMetrics
from tierfs.setup.connect import wrapped
from tierfs.types import LocationId

_BUCKET = "bucket"


class Bucket(MemoryStorage):
    """Objects that a server looks for by the paths of signed URLs, too."""

    def stat(self, name: str) -> StoredObject:
        return super().stat(unquote(name.partition("?")[0]).removeprefix(f"{_BUCKET}/"))


@contextmanager
def over_http(store: TestStore, encrypted: ssl.SSLContext | None = None) -> Iterator[tuple[RangeServer, ChunkStorage]]:
    """The server, and the storage that reads the objects of a store, whose cold tier is a Bucket, from there."""
    with serving(store.cold, random.Random(1), encrypted) as server:
        location = S3Location(_BUCKET, endpoint_url=server.origin, region="us-east-1")
        record = LocationRecord(id=LocationId(1), url=f"s3://{_BUCKET}", writable=True)
        settings = ColdSettings()
        with closing(wrapped(S3Storage(location, settings), record, settings, NullMetrics())) as cold:
            yield server, cold
