"""Every provider and wrapper the conformance suite runs on."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

from tests.servers.endpoint import S3Endpoint
from tierfs.base.options.config import ColdSettings
from tierfs.base.system.prometheus import Metrics
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.places.address import connect_place
from tierfs.engine.chunkstore.places.storage import PlaceStorage
from tierfs.engine.chunkstore.protocol import Abilities, ChunkStorage
from tierfs.engine.chunkstore.read_only import ReadOnlyStorage
from tierfs.engine.chunkstore.resilient import ResilientStorage
from tierfs.engine.chunkstore.s3.location import S3Location
from tierfs.engine.chunkstore.s3.storage import UNPROBED, S3Storage
from tierfs.engine.chunkstore.wrappers import Wrapped

PREFIX = "tenant/ü"
"""Every S3 run has a prefix, and one that needs percent-encoding."""

FAR = ["gcs", "azure", "sftp", pytest.param("webhdfs", marks=pytest.mark.hdfs)]
"""Places of servers."""

STORAGES = [
    "memory",
    "directory",
    "wrapped",
    "place-memory",
    "place-local",
    *FAR,
    pytest.param("moto", marks=pytest.mark.whole),
    pytest.param("rgw", marks=pytest.mark.s3),
    "versity",
]
"""One of each, and beside the real S3 its double in `make test-all`.

A way of reading or writing of S3 is in READING or WRITING, for the calls that it changes.
"""

_WHOLE_ON_CEPH = [pytest.mark.s3, pytest.mark.whole]
READING = [*STORAGES, "moto-get_object", pytest.param("rgw-get_object", marks=_WHOLE_ON_CEPH)]
_VERSITY = pytest.param("versity", marks=pytest.mark.whole)
"""It reads and lists in every run; writing, which takes the most, is proved by the real S3 and its double."""
_NATIVE = pytest.param("hdfs", marks=[pytest.mark.hdfs, pytest.mark.whole])
KEEPING = [*STORAGES, "directory-sidecars"]
"""For the calls that metadata changes: without extended attributes they are in files of their own."""
WRITING = [
    *(_VERSITY if each == "versity" else each for each in KEEPING),
    _NATIVE,
    "moto-crc32c",
    pytest.param("rgw-crc32c", marks=_WHOLE_ON_CEPH),
]
COMPOSING = [each for each in WRITING if each not in FAR]
"""One function composes in every place, by its reads and one put: place-memory and place-local stand for all."""
PAGES = [pytest.param("moto", marks=pytest.mark.whole), pytest.param("rgw", marks=pytest.mark.s3)]
"""Those that list by pages."""

REFUSING = ["memory", "directory", "moto"]
"""What is refused before anything is sent is refused by these; others share their checks, or are below a wrapper."""


@contextmanager
def opened(kind: str, request: pytest.FixtureRequest) -> Iterator[ChunkStorage]:
    """An empty storage of one kind, closed at the end."""
    server, _, mode = kind.partition("-")
    if server in ("moto", "rgw", "versity"):
        storage: ChunkStorage = s3_storage(request.getfixturevalue(f"{server}_bucket"), mode)
    elif server == "directory":
        if mode == "sidecars":
            without_xattrs(request.getfixturevalue("monkeypatch"))
        storage = DirectoryStorage.create(request.getfixturevalue("tmp_path") / "cold")
    elif server == "place":
        root = f"memory://{uuid.uuid4().hex}" if mode == "memory" else f"local://{request.getfixturevalue('tmp_path')}"
        storage = place_storage(f"{root}/ü 1")
    elif server == "gcs":
        storage = place_storage(*request.getfixturevalue("gcs_bucket"))
    elif server == "azure":
        storage = place_storage(request.getfixturevalue("azure_container"))
    elif server == "sftp":
        storage = place_storage(request.getfixturevalue("sftp_directory"))
    elif server in ("webhdfs", "hdfs"):
        storage = place_storage(getattr(request.getfixturevalue("hdfs_root"), server))
    elif kind == "wrapped":
        storage = wrapped(DirectoryStorage.create(request.getfixturevalue("tmp_path") / "cold"))
    else:
        storage = MemoryStorage()
    with closing(storage):
        yield storage


def place_storage(url: str, endpoint_url: str = "") -> PlaceStorage:
    """What fsspec reaches at a URL."""
    return connect_place(url, endpoint_url, ColdSettings(), Abilities())


def s3_storage(bucket: tuple[S3Endpoint, str], mode: str = "") -> S3Storage:
    """A bucket of a test server, read or written in one of the ways there are."""
    endpoint, name = bucket
    location = S3Location(name, PREFIX, endpoint.endpoint_url, endpoint.region)
    settings = ColdSettings(presigned_reads=mode != "get_object")
    return S3Storage(location, settings, abilities=replace(UNPROBED, verifies_crc32c=mode == "crc32c"))


def without_xattrs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filesystem that knows no extended attributes."""
    import errno
    import os

    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    for function in ("setxattr", "getxattr", "listxattr"):
        monkeypatch.setattr(os, function, refuse)


class FilledBehind(ReadOnlyStorage):
    """Lets the suite put what it reads."""

    put = Wrapped.put
    compose = Wrapped.compose
    delete = Wrapped.delete
    delete_many = Wrapped.delete_many
    uploads = Wrapped.uploads
    abort_upload = Wrapped.abort_upload


def wrapped(inner: ChunkStorage) -> ChunkStorage:
    """`inner` in every wrapper at once: what one of them loses or changes is lost or changed for all."""
    inner = FilledBehind(Wrapped(inner))
    return ResilientStorage(
        inner, max_in_flight=1, attempts=3, base_delay_s=0.001, max_delay_s=0.001, metrics=Metrics()
    )
