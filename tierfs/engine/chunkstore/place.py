"""Place: somewhere that objects are kept, and the ways to a connection there.

A place is a record of the store with the two things that a connection needs beside it: the directory that a relative
one is in, and the settings. It holds no secret: each provider finds its credentials by itself. The scheme of its URL
says which provider serves it: `file` and `s3` are registered here, the others by the table in `places.address`, and
those of installed packages by their entry points, see `binding`. A provider's modules are imported once it is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.config import ColdSettings
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.system.metrics import MetricSink
from tierfs.base.words.errors import PermissionDenied
from tierfs.base.words.names import printable, to_os
from tierfs.engine.chunkstore.bounded import BoundedStorage
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
from tierfs.engine.chunkstore.link import LEAST_STREAMS, Link
from tierfs.engine.chunkstore.probe import probe
from tierfs.engine.chunkstore.protocol import Abilities, ChunkStorage
from tierfs.engine.chunkstore.read_only import ReadOnlyDirectory, ReadOnlyStorage
from tierfs.engine.chunkstore.resilient import ResilientStorage
from tierfs.engine.chunkstore.s3.location import S3_SCHEME, S3Location, split_s3_url
from tierfs.engine.metadata.records import LocationRecord

FILE_SCHEME = "file:"


@dataclass(frozen=True, slots=True)
class Place:
    """A place for objects. Nothing is sent to its server but by what `open` and `shared` return."""

    record: LocationRecord
    store: Path
    """The directory that a relative one is in."""
    settings: ColdSettings

    def open(self, *, sweep: Clock | None = None) -> ChunkStorage:
        """Return its provider alone: it fails at once, as a probe needs. A store's owner gives a clock to `sweep` by.

        Raises InvalidRequest for a scheme that neither tierfs nor an installed package serves, or whose packages are
        missing.
        """
        return self._provider.open(self, sweep)

    def probed(self, bare: ChunkStorage) -> Place:
        """Return it with what its server was found to honour. Raises what its provider, `bare`, raises."""
        abilities = probe(bare)
        record = replace(
            self.record,
            create_only_put=abilities.create_only_put,
            create_only_multipart=abilities.create_only_multipart,
            verifies_crc32c=abilities.verifies_crc32c,
            keeps_objects=not abilities.deletes,
        )
        return Place(record, self.store, self.settings)

    def shared(self, metrics: MetricSink, *, sweeps: bool = True) -> ChunkStorage:
        """Return its storage for many users: instrumented, retried, limited.

        `sweeps`: removes what killed writers left, as a store's owner does.
        """
        return self.wrapped(self.open(sweep=SystemClock() if sweeps else None), metrics)

    def wrapped(self, bare: ChunkStorage, metrics: MetricSink, link: Link | None = None) -> ChunkStorage:
        """Return its provider in its wrappers, closed with them. They measure `link`; None: a new one."""
        settings = self.settings
        allowed = bare if self.record.writable else ReadOnlyStorage(bare)
        resilient = ResilientStorage(
            allowed,
            max_in_flight=settings.requests_in_flight,
            attempts=settings.attempts,
            base_delay_s=settings.retry_base_s,
            max_delay_s=settings.retry_max_s,
            metrics=metrics,
            link=link or self.new_link(),
        )
        return BoundedStorage(resilient)

    def new_link(self) -> Link:
        """Return a new measurement of the link to it."""
        # A disk, also one of a NAS, is not faster for more readers at once: its head has more ways to go.
        return Link(most_streams=LEAST_STREAMS if self.record.url.startswith(FILE_SCHEME) else None)

    def require_allowed(self) -> None:
        """Raise PermissionDenied for a place that only a bucket's journal named (design §11, security)."""
        record = self.record
        if not record.from_journal:
            return
        named = f"{record.url}@{record.endpoint_url}" if record.endpoint_url else record.url
        if named not in self.settings.allowed_locations.split():
            shown = printable(named)
            raise PermissionDenied(
                f"{shown} is only in the bucket's journal, not allowed here, so nothing is read there",
                remedy=f'to allow it, add it in store.toml: [cold] allowed_locations = "{shown}"',
            )

    @property
    def in_files(self) -> bool:
        """Whether it keeps plain files, which have no user metadata of their own."""
        return self._provider.in_files(self.record.url)

    def make_bucket(self) -> None:
        """Make its bucket in S3, unless it is there. Raises AlreadyExists for another owner's."""
        from tierfs.engine.chunkstore.s3 import client

        client.create_bucket(self.s3_location, self.settings)

    @property
    def s3_location(self) -> S3Location:
        """It as the provider of S3 takes it. Raises InvalidRequest for any other place."""
        bucket, prefix = split_s3_url(self.record.url)
        return S3Location(
            bucket=bucket,
            prefix=prefix,
            endpoint_url=self.record.endpoint_url or None,
            region=self.record.region or None,
            profile=self.record.profile or None,
            addressing=self.settings.addressing,
        )

    @property
    def abilities(self) -> Abilities:
        """What its server was found to honour when it was probed."""
        return Abilities(
            create_only_put=self.record.create_only_put,
            create_only_multipart=self.record.create_only_multipart,
            verifies_crc32c=self.record.verifies_crc32c,
        )

    @property
    def _provider(self) -> Provider:
        return provider_of(self.record.url)


def tried_once(bare: ChunkStorage) -> ChunkStorage:
    """Return a provider in a wrapper that repeats no call but one refused before the credentials were replaced."""
    return BoundedStorage(ResilientStorage(bare))


@dataclass(frozen=True, slots=True)
class Provider:
    """One that serves the places of a scheme."""

    open: Callable[[Place, Clock | None], ChunkStorage]
    """Connects; the clock is a store's owner's, to sweep by."""
    in_files: Callable[[str], bool]
    """Whether the objects of a URL are plain files."""


def provider_of(url: str) -> Provider:
    """Return the provider that serves a URL: that of installed packages for a scheme that is not known here."""
    known = PROVIDERS.get(url.partition(":")[0])
    if known is not None:
        return known
    from tierfs.engine.chunkstore.places import address

    return _LISTED if address.is_known(url) else _BOUND


def _open_directory(place: Place, sweep: Clock | None) -> ChunkStorage:
    path = place.store / to_os(place.record.url.removeprefix(FILE_SCHEME))
    return DirectoryStorage(path, sweep=sweep) if place.record.writable else ReadOnlyDirectory(path)


def _open_bucket(place: Place, sweep: Clock | None) -> ChunkStorage:
    from tierfs.engine.chunkstore.s3.storage import S3Storage  # botocore takes 0.3 s to import

    return S3Storage(place.s3_location, place.settings, abilities=place.abilities)


def _open_listed(place: Place, sweep: Clock | None) -> ChunkStorage:
    from tierfs.engine.chunkstore.places import address

    return address.connect_place(place.record.url, place.record.endpoint_url, place.settings, place.abilities)


def _open_bound(place: Place, sweep: Clock | None) -> ChunkStorage:
    from tierfs.engine.chunkstore import binding  # looking for packages takes 50 ms

    return binding.connect(place.record.url)


def _listed_in_files(url: str) -> bool:
    from tierfs.engine.chunkstore.places import address

    return address.in_files(url)


_LISTED = Provider(_open_listed, _listed_in_files)
_BOUND = Provider(_open_bound, lambda _: False)

PROVIDERS: Mapping[str, Provider] = {
    "file": Provider(_open_directory, lambda _: True),
    S3_SCHEME: Provider(_open_bucket, lambda _: False),
}
