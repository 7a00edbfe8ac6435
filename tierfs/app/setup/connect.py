"""Choose the storage class of a location, and wrap it. Part of the composition root."""

from __future__ import annotations

from pathlib import Path

from tierfs.base.options.config import ColdSettings
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.system.metrics import MetricSink
from tierfs.base.words.errors import InvalidRequest, PermissionDenied
from tierfs.base.words.names import printable, to_os
from tierfs.engine.chunkstore.bounded import BoundedStorage
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
from tierfs.engine.chunkstore.link import LEAST_STREAMS, Link
from tierfs.engine.chunkstore.probe import ServedStorage
from tierfs.engine.chunkstore.protocol import Abilities, ChunkStorage
from tierfs.engine.chunkstore.read_only import ReadOnlyDirectory, ReadOnlyStorage
from tierfs.engine.chunkstore.resilient import ResilientStorage
from tierfs.engine.chunkstore.s3.location import S3Location
from tierfs.engine.metadata.records import LocationRecord

FILE_SCHEME = "file:"
S3_SCHEME = "s3"
_S3_PREFIX = f"{S3_SCHEME}://"


def split_s3_url(url: str) -> tuple[str, str]:
    """Split `s3://bucket/prefix` into both; nothing in a key is special, `#` and `?` included.

    Raises InvalidRequest for any other URL.
    """
    bucket, _, prefix = url.removeprefix(_S3_PREFIX).partition("/")
    if not url.startswith(_S3_PREFIX) or not bucket:
        raise InvalidRequest(f"{url} is not an S3 location", remedy="write it as s3://BUCKET/PREFIX")
    return bucket, prefix


def connect(
    location: LocationRecord, store: Path, settings: ColdSettings, metrics: MetricSink, *, sweeps: bool = True
) -> ChunkStorage:
    """Return the storage of a location: instrumented, retried, limited. Nothing is sent to a server yet.

    `sweeps`: removes what killed writers left, as a store's owner does.
    """
    sweep = SystemClock() if sweeps else None
    bare = connect_bare(location, store, settings, sweep=sweep)
    return wrapped(bare, location, settings, metrics)


def link_of(location: LocationRecord) -> Link:
    """Return a new measurement of the link to a location."""
    # A disk, also one of a NAS, is not faster for more readers at once: its head has more ways to go.
    return Link(most_streams=LEAST_STREAMS if location.url.startswith(FILE_SCHEME) else None)


def wrapped(
    bare: ChunkStorage, location: LocationRecord, settings: ColdSettings, metrics: MetricSink, link: Link | None = None
) -> ChunkStorage:
    """Return the provider of a location in its wrappers, closed with them. They measure `link`; None: a new one."""
    allowed = bare if location.writable else ReadOnlyStorage(bare)
    resilient = ResilientStorage(
        allowed,
        max_in_flight=settings.requests_in_flight,
        attempts=settings.attempts,
        base_delay_s=settings.retry_base_s,
        max_delay_s=settings.retry_max_s,
        metrics=metrics,
        link=link or link_of(location),
    )
    return BoundedStorage(resilient)


def tried_once(bare: ChunkStorage) -> ChunkStorage:
    """Return a provider in a wrapper that repeats no call but one refused before the credentials were replaced."""
    return BoundedStorage(ResilientStorage(bare))


def require_allowed(location: LocationRecord, settings: ColdSettings) -> None:
    """Raise PermissionDenied for a place that only a bucket's journal named (design §11, security)."""
    if not location.from_journal:
        return
    place = f"{location.url}@{location.endpoint_url}" if location.endpoint_url else location.url
    if place not in settings.allowed_locations.split():
        shown = printable(place)
        raise PermissionDenied(
            f"{shown} was named by the bucket's journal, not here, so nothing is read there",
            remedy=f'to allow it, add it in store.toml: [cold] allowed_locations = "{shown}"',
        )


def server_time_ms(bare: ChunkStorage) -> int | None:
    """Return the time of a provider's server; None where there is no server. Raises Unavailable."""
    return bare.server_time_ms() if isinstance(bare, ServedStorage) else None


def connect_bare(
    location: LocationRecord, store: Path, settings: ColdSettings, *, sweep: Clock | None = None
) -> ChunkStorage:
    """Return the provider alone: it fails at once, as a probe needs. A store's owner gives a clock to `sweep` by.

    Raises InvalidRequest for a scheme that neither tierfs nor an installed package serves, or whose packages are
    missing.
    """
    if location.url.startswith(FILE_SCHEME):
        path = store / to_os(location.url.removeprefix(FILE_SCHEME))
        return DirectoryStorage(path, sweep=sweep) if location.writable else ReadOnlyDirectory(path)
    abilities = Abilities(
        create_only_put=location.create_only_put,
        create_only_multipart=location.create_only_multipart,
        verifies_crc32c=location.verifies_crc32c,
    )
    if not location.url.startswith(_S3_PREFIX):
        from tierfs.engine.chunkstore import binding  # looking for packages takes 50 ms
        from tierfs.engine.chunkstore.places import address

        if not address.is_known(location.url):
            return binding.connect(location.url)
        return address.connect_place(location.url, location.endpoint_url, settings, abilities)
    from tierfs.engine.chunkstore.s3.storage import S3Storage  # botocore takes 0.3 s to import

    return S3Storage(_s3_location(location, settings), settings, abilities=abilities)


def in_files(location: LocationRecord) -> bool:
    """Return whether a place of others keeps plain files, which have no user metadata of their own."""
    from tierfs.engine.chunkstore.places import address

    return location.url.startswith(FILE_SCHEME) or address.in_files(location.url)


def create_bucket(location: LocationRecord, settings: ColdSettings) -> None:
    """Make the bucket of a location in S3, unless it is there. Raises AlreadyExists for another owner's."""
    from tierfs.engine.chunkstore.s3 import client

    client.create_bucket(_s3_location(location, settings), settings)


def _s3_location(location: LocationRecord, settings: ColdSettings) -> S3Location:
    bucket, prefix = split_s3_url(location.url)
    return S3Location(
        bucket=bucket,
        prefix=prefix,
        endpoint_url=location.endpoint_url or None,
        region=location.region or None,
        profile=location.profile or None,
        addressing=settings.addressing,
    )
