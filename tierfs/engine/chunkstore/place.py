"""Place: somewhere that objects are kept, from the URL that names it to a connection.

A place is parsed once, from a URL or the options of a command. It is a record of the store with the two things that a
connection needs next to it: the directory that a relative one is in, and the settings. It contains no secret: each
provider finds its credentials by itself. The scheme of its URL selects the provider, which parses and opens it: `file`
and `s3` are registered here, the others by the table in `places.address`, and those of installed packages by their
entry points, see `binding`. A provider's modules are imported when it parses or opens a place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.options.config import ColdSettings
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.system.metrics import MetricSink
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import from_os, printable, to_os
from tierfs.base.words.types import LocationId
from tierfs.engine.chunkstore.bounded import BoundedStorage
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
from tierfs.engine.chunkstore.link import LEAST_STREAMS, Link
from tierfs.engine.chunkstore.probe import probe
from tierfs.engine.chunkstore.protocol import Abilities, ChunkStorage
from tierfs.engine.chunkstore.read_only import ReadOnlyDirectory, ReadOnlyStorage
from tierfs.engine.chunkstore.resilient import ResilientStorage
from tierfs.engine.chunkstore.s3.location import S3_SCHEME, S3Location, configured_endpoint, recorded_url, split_s3_url
from tierfs.engine.metadata import allowed_places
from tierfs.engine.metadata.records import LocationRecord

FILE_SCHEME = "file:"
_FILE_URL = "file://"
_S3_URL = f"{S3_SCHEME}://"

# With it, the longest name and the chunk's own part fill S3's 1024 bytes of a key.
MAX_PREFIX_BYTES = 80

# The number of a store's own place, its first; a foreign one gets its number when it is registered.
_OWN, _NO_ID = LocationId(1), LocationId(0)


@dataclass(frozen=True, slots=True)
class Server:
    """The server of a place, for what its URL does not contain; "" selects the usual one."""

    endpoint_url: str = ""
    region: str = ""
    profile: str = ""


USUAL = Server()


@dataclass(frozen=True, slots=True)
class Place:
    """A place for objects. Only what `open` and `shared` return sends requests to its server."""

    record: LocationRecord
    store: Path = field(default_factory=Path)
    """The directory that a relative one is in."""
    settings: ColdSettings = field(default_factory=ColdSettings)

    @classmethod
    def parsed(cls, url: str, server: Server = USUAL) -> Place:
        """Return the place for a store's objects that a URL, or the full path of a directory, names.

        Raises InvalidRequest for any other text, a URL with a secret, and parts of a server that it does not take.
        """
        return cls(provider_of(url).parse(url, server))

    @classmethod
    def in_bucket(cls, url: str, server: Server = USUAL) -> Place:
        """Do as `parsed`, for a bucket: of S3, or of an installed package."""
        provider = _BOUND if provider_of(url) is _BOUND and _is_bound(url) else _S3
        return cls(provider.parse(url, server))

    @classmethod
    def in_directory(cls, path: Path) -> Place:
        """Return the place in a directory, which need not exist yet."""
        return cls(_recorded(FILE_SCHEME + from_os(str(path.absolute()))))

    @classmethod
    def inside(cls) -> Place:
        """Return the place in the directory of its store."""
        return cls(_recorded(f"{FILE_SCHEME}cold"))

    @classmethod
    def unknown(cls, store: Path, settings: ColdSettings) -> Place:
        """Return what a store's first place is `changed` from; it has no URL yet."""
        return cls(_recorded("", Server(configured_endpoint())), store, settings)

    @classmethod
    def foreign(cls, url: str, server: Server, settings: ColdSettings) -> Place:
        """Return a place of others' objects, which are only read; `open` raises what is wrong with its URL."""
        record = LocationRecord(
            id=_NO_ID,
            url=url,
            endpoint_url=server.endpoint_url,
            region=server.region,
            profile=server.profile,
            writable=False,
        )
        return cls(record, settings=settings)

    def changed(self, parts: Mapping[str, str]) -> Place:
        """Return it with other parts of its record: `url`, and those of a Server. Raises InvalidRequest."""
        changes = dict(parts)
        url = changes.pop("url", None)
        if url is not None:
            if not url.startswith(_S3_URL):
                if "://" not in url:
                    directory = url.removeprefix(FILE_SCHEME)
                    if not directory.startswith("/"):
                        raise InvalidRequest(f"{printable(url)} is not a place", remedy="write a URL, or a full path")
                    url = directory
                changes = {"endpoint_url": "", "region": "", "profile": "", **changes}  # those of S3's servers
            changes["url"] = Place.parsed(url, Server(changes.get("endpoint_url", ""))).record.url
        return replace(self, record=replace(self.record, **changes))  # type: ignore[arg-type]

    def has_same_address(self, other: Place) -> bool:
        """Return whether the URL and the server of both are the same; a place may have more than one address."""
        ours, theirs = self.record, other.record
        return (ours.url, ours.endpoint_url) == (theirs.url, theirs.endpoint_url)

    def of_store(self, store: Path) -> Place:
        """Return it as the store in a directory has it."""
        return replace(self, store=store)

    def open(self, *, sweep: Clock | None = None) -> ChunkStorage:
        """Return its provider alone: it fails at once, as a probe needs. A store's owner gives a clock to `sweep` by.

        Raises InvalidRequest for a scheme that neither tierfs nor an installed package serves, or whose packages are
        missing.
        """
        return provider_of(self.record.url).open(self, sweep)

    def probed(self, bare: ChunkStorage) -> Place:
        """Return it with what its server was found to honour. Raises what its provider, `bare`, raises."""
        abilities = probe(bare)
        record = replace(
            self.record,
            create_only_put=abilities.create_only_put,
            create_only_multipart=abilities.create_only_multipart,
            verifies_crc32c=abilities.verifies_crc32c,
            keeps_objects=not abilities.deletes,
            max_object_bytes=abilities.max_object_bytes,
        )
        return replace(self, record=record)

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
        """Raise PermissionDenied for a place that only a bucket's journal named."""
        refused = allowed_places.refusal(self.record, self.settings.allowed_locations)
        if refused is not None:
            raise refused

    @property
    def directory(self) -> Path | None:
        """The directory that it is; None for a place of another kind."""
        url = self.record.url
        return self.store / to_os(url.removeprefix(FILE_SCHEME)) if url.startswith(FILE_SCHEME) else None

    @property
    def in_files(self) -> bool:
        """Whether it keeps plain files, which have no user metadata of their own."""
        return provider_of(self.record.url).in_files(self.record.url)

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


def tried_once(bare: ChunkStorage) -> ChunkStorage:
    """Return a provider in a wrapper that repeats no call but one refused before the credentials were replaced."""
    return BoundedStorage(ResilientStorage(bare))


@dataclass(frozen=True, slots=True)
class Provider:
    """One that serves the places of a scheme."""

    parse: Callable[[str, Server], LocationRecord]
    """Returns the record of a URL; sends nothing. Raises InvalidRequest."""
    open: Callable[[Place, Clock | None], ChunkStorage]
    """Connects; the clock is a store's owner's, to sweep by."""
    in_files: Callable[[str], bool]
    """Whether the objects of a URL are plain files."""


def provider_of(url: str) -> Provider:
    """Return the provider that serves a URL: that of installed packages for a scheme that is not known here."""
    known = PROVIDERS.get("file" if url.startswith("/") else url.partition(":")[0])
    if known is not None:
        return known
    from tierfs.engine.chunkstore.places import address

    return _LISTED if address.is_known(url) else _BOUND


def is_in_s3(url: str) -> bool:
    """Return whether a URL is that of a bucket in S3."""
    return url.startswith(_S3_URL)


def _recorded(url: str, server: Server = USUAL) -> LocationRecord:
    return LocationRecord(
        id=_OWN, url=url, endpoint_url=server.endpoint_url, region=server.region, profile=server.profile
    )


def _parse_directory(url: str, server: Server) -> LocationRecord:
    from tierfs.engine.chunkstore.places import address

    _require_usual(url, server)
    directory = url.removeprefix(_FILE_URL)
    if not directory.startswith("/"):
        raise address.unknown_kind(url)
    return Place.in_directory(Path(directory)).record


def _parse_bucket(url: str, server: Server) -> LocationRecord:
    recorded = recorded_url(url)
    _require_short(split_s3_url(recorded)[1])
    return _recorded(recorded, replace(server, endpoint_url=server.endpoint_url or configured_endpoint()))


def _parse_listed(url: str, server: Server) -> LocationRecord:
    from tierfs.engine.chunkstore.places import address

    _require_usual(url, server)
    parsed = address.parse(url, server.endpoint_url)
    if not parsed.in_files:
        _require_short(parsed.path)
    return _recorded(parsed.url, Server(parsed.endpoint_url))


def _parse_bound(url: str, server: Server) -> LocationRecord:
    from tierfs.engine.chunkstore.places import address

    _require_usual(url, server)
    if not _is_bound(url):
        raise address.unknown_kind(url)
    address.require_no_secret(url)
    return _recorded(url.rstrip("/"))


def _is_bound(url: str) -> bool:
    from tierfs.engine.chunkstore import binding  # looking for packages takes 50 ms

    return binding.is_bound(url)


def _require_usual(url: str, server: Server) -> None:
    """Raise InvalidRequest for parts of a server that only S3 takes."""
    from tierfs.engine.chunkstore.places import address

    if server.region or server.profile:
        raise InvalidRequest(f"{address.without_secret(url)} takes neither region nor profile: these are for S3")


def _require_short(prefix: str) -> None:
    if len(prefix.encode()) > MAX_PREFIX_BYTES:
        raise InvalidRequest(f"the prefix {prefix} has more than {MAX_PREFIX_BYTES} bytes")


def _open_directory(place: Place, sweep: Clock | None) -> ChunkStorage:
    path = place.directory
    assert path is not None
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


_S3 = Provider(_parse_bucket, _open_bucket, lambda _: False)
_LISTED = Provider(_parse_listed, _open_listed, _listed_in_files)
_BOUND = Provider(_parse_bound, _open_bound, lambda _: False)

PROVIDERS: Mapping[str, Provider] = {
    "file": Provider(_parse_directory, _open_directory, lambda _: True),
    S3_SCHEME: _S3,
}
