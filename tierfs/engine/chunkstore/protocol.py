"""The contract every provider keeps, and optional abilities: listing unfinished uploads, URLs for HTTP.

The conformance suite in tests/conformance runs it on all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.system.os_errors import map_os_errors
from tierfs.base.system.osio import read_all
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import recordable_ms

if TYPE_CHECKING:
    from tierfs.engine.chunkstore.http.tls import TlsClient

# S3's limit for one DeleteObjects.
MOST_DELETED = 1000

# Called with the number of bytes received so far, counted from the start of the read; ascending.
OnReceived = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Abilities:
    """The guarantees a provider honours. Probed once by `probe.py` and stored with the location."""

    create_only_put: bool = True
    """A single PUT with If-None-Match fails on an existing name."""
    create_only_multipart: bool = True
    """Completing a multipart upload with If-None-Match fails on an existing name (RGW ignores it)."""
    verifies_crc32c: bool = False
    """The server refuses bytes that do not match a CRC32C sent along; else Content-MD5 is sent."""
    deletes: bool = True
    """The key may delete. Nothing else depends on it, so that append-only archives work too."""
    max_object_bytes: int = 0
    """Largest object, as the provider states it; 0: no limit that a store meets."""


@dataclass(frozen=True, slots=True)
class Supports:
    """Statement of a provider about its place. A store checks it before it uses the place; `probe` tries the rest."""

    writes: bool = True
    """Objects can be created. Otherwise the place can be followed and adopted from, but no store can own it."""
    create_only: bool = True
    """An existing name is refused, whoever writes at the same time. Otherwise an advisory lease replaces that."""
    deletes: bool = True
    """Objects can be deleted."""
    concat: bool = False
    """The place joins whole objects without copying a byte."""
    copies: bool = False
    """The place copies ranges of its objects into a new one; otherwise the bytes pass through the client."""
    max_object_bytes: int = 0
    """Largest object; 0: no limit that a store meets."""


ALL_SUPPORTED = Supports()


@runtime_checkable
class StatesSupport(Protocol):
    """A provider that states what it supports."""

    @property
    def supports(self) -> Supports:
        """Its statement: constant, and known before anything is sent."""
        ...


def supports_of(storage: object) -> Supports:
    """Return what a provider states; the defaults for one that states nothing."""
    return storage.supports if isinstance(storage, StatesSupport) else ALL_SUPPORTED


@dataclass(frozen=True, slots=True)
class Thaw:
    """The state of an archived object that was requested back."""

    until_ms: int = 0
    """Until then it can be read, by the server's clock; 0: not yet."""

    @property
    def is_done(self) -> bool:
        """Whether its bytes can be read."""
        return self.until_ms > 0


class ThawSpeed(StrEnum):
    """The speed at which an archive brings an object back, each at its price: the tiers of S3's RestoreObject."""

    STANDARD = "standard"
    BULK = "bulk"
    EXPEDITED = "expedited"


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object as the server reports it."""

    name: str
    length_bytes: int
    etag: str
    """Opaque; changes whenever the bytes change. Never empty."""
    modified_ms: int = field(default=0, compare=False)
    """By the server's clock, as near as a record can have it; 0 where it was not asked, as after most uploads."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """User metadata, lower-case ASCII keys; empty in listings, which do not carry it."""
    storage_class: str = field(default="", compare=False)
    """As the server names it; empty where it names none."""
    thaw: Thaw | None = field(default=None, compare=False)
    """Of an object that was requested back from an archive, as `stat` reports it; None for every other."""

    def __post_init__(self) -> None:
        """Here for all storages: an adopted object keeps its time, and no record has one before 1970."""
        recordable = recordable_ms(self.modified_ms)
        if recordable != self.modified_ms:
            object.__setattr__(self, "modified_ms", recordable)


@dataclass(frozen=True, slots=True)
class ObjectPiece:
    """A range of one version of a stored object."""

    name: str
    offset: int
    length_bytes: int
    etag: str
    may_move: bool = False
    """Its object is the store's own: a place may move the bytes, if the name stays readable until it is deleted."""


@dataclass(frozen=True, slots=True)
class ComposedObject(StoredObject):
    """An object made of pieces of others."""

    client_bytes: int = 0
    """Bytes of it that were read and uploaded again; the storage copied the rest by itself."""

    moved: bool = False
    """No byte was copied: its bytes are those that the pieces were stored as."""

    @classmethod
    def of(cls, stored: StoredObject, client_bytes: int = 0, *, moved: bool = False) -> ComposedObject:
        """Return the same object with the cost of making it."""
        fields = (stored.name, stored.length_bytes, stored.etag, stored.modified_ms, stored.metadata)
        return cls(*fields, client_bytes=client_bytes, moved=moved)


@dataclass(frozen=True, slots=True)
class PendingUpload:
    """An upload that was begun and neither completed nor aborted."""

    name: str
    """Of the object it would become; a provider's own temporary name if that is unknown."""
    upload_id: str
    """Opaque; tells two uploads of one name apart."""
    started_ms: int
    """The server's clock."""


class Source(Protocol):
    """Bytes to upload. Reads may come from several threads, in any order, and again after a retry."""

    @property
    def length_bytes(self) -> int:
        """Total number of bytes."""
        ...

    def read(self, offset: int, length_bytes: int) -> Buffer:
        """Return exactly `length_bytes` from `offset`. The buffer stays unchanged while the caller holds it.

        Raises DataLoss when the bytes are not there.
        """
        ...


@runtime_checkable
class PartedSource(Source, Protocol):
    """A Source with boundaries at which an upload in parts should be cut."""

    @property
    def part_lengths(self) -> Sequence[int]:
        """Sizes of the parts; a provider with other limits chooses its own."""
        ...


class BufferSource:
    """A Source over bytes in memory."""

    def __init__(self, data: Buffer) -> None:
        self._view = memoryview(data)

    @property
    def length_bytes(self) -> int:
        """Total number of bytes."""
        return len(self._view)

    def read(self, offset: int, length_bytes: int) -> Buffer:
        """Return a view of the bytes; nothing is copied."""
        return self._view[offset : offset + length_bytes]


class FileSource:
    """A Source over an open file, for bytes that may not fit into memory.

    Not a map of it: one with a view left, as in the frames of an error, cannot be closed.
    """

    def __init__(self, fd: int, name: str) -> None:
        """Read from `fd`, which stays the caller's; `name` is for messages."""
        self._fd = fd
        self._name = name
        with map_os_errors(name):
            self._length_bytes = os.fstat(fd).st_size

    @property
    def length_bytes(self) -> int:
        """Total number of bytes."""
        return self._length_bytes

    def read(self, offset: int, length_bytes: int) -> Buffer:
        """Return the bytes in a buffer of their own. Raises DataLoss when the file is too short."""
        view = memoryview(bytearray(length_bytes))
        with map_os_errors(self._name):
            done = read_all(self._fd, view, offset)
        if done < length_bytes:
            raise DataLoss(f"{self._name} ends at {offset + done}, before {offset + length_bytes}")
        return view


class EtagDiffers(DataLoss):
    """An object has another ETag than the one requested: it was copied, restored or replaced."""

    def __init__(self, message: str, *, etag: str, length_bytes: int | None) -> None:
        """`etag` and `length_bytes` are the current ones; None if the answer does not state the length."""
        super().__init__(message, remedy="run: tierfs check")
        self.etag = etag
        self.length_bytes = length_bytes


@dataclass(frozen=True, slots=True)
class RangeUrl:
    """A URL in two parts: scheme, host and port; path and query."""

    origin: str
    target: str = field(repr=False)
    tls: TlsClient | None = field(default=None, repr=False)
    """Encrypts connections to the origin; None: it speaks plain HTTP."""


class ChunkStorage(Protocol):
    """A flat name space of immutable objects. Names are '/'-separated relative paths, at most 1024 bytes.

    Every method is thread-safe, blocks, and raises only errors of tierfs.base.words.errors:
    NotFound, AlreadyExists, PermissionDenied, StorageFull, Unavailable (worth a retry), DataLoss,
    InvalidRequest (wrong bucket or endpoint, never worth a retry), Closed.
    """

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        """Store all of `source` under `name`, atomically and durably: readers see all of it or NotFound.

        Not idempotent when create_only: an existing name raises AlreadyExists and keeps its bytes. After
        Unavailable the object may exist: the caller resolves that by `stat`, never by assumption.
        The returned length and etag are the server's, checked against what was sent.
        """
        ...

    def compose(
        self,
        name: str,
        pieces: Sequence[ObjectPiece],
        *,
        metadata: Mapping[str, str] | None = None,
        create_only: bool = True,
    ) -> ComposedObject:
        """Store under `name` the bytes of `pieces`, in order, as `put` would: atomically and durably.

        The storage copies what it can by itself. Raises NotFound for a piece whose object is missing, EtagDiffers
        when an object is not the version that its piece names, DataLoss when it is too short, InvalidRequest without
        pieces or with an empty one. A failure leaves no parts unless the connection broke; after Unavailable the
        object may exist, as after `put`.
        """
        ...

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: OnReceived | None = None,
    ) -> None:
        """Fill `buffer` with the object's bytes from `offset`; idempotent.

        Bytes arrive in order; `progress` is called as they do, about every MiB. A read past the end raises
        DataLoss (the buffer's content is then undefined), an object whose etag is not `if_match` EtagDiffers,
        before any of its bytes arrive.
        """
        ...

    def stat(self, name: str) -> StoredObject:
        """Return the object's length, etag and metadata. Raises NotFound."""
        ...

    def delete(self, name: str) -> None:
        """Remove the object; a missing one is success (idempotent)."""
        ...

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """Return objects whose name starts with `prefix` and is greater than `after`, ascending by UTF-8 bytes.

        Paginated inside. A failing page raises; an empty iterator always means that there are no objects.
        """
        ...

    def close(self) -> None:
        """Release connections; idempotent. Later calls raise Closed."""
        ...


@runtime_checkable
class Uploads(Protocol):
    """A storage in which an interrupted upload leaves parts: multipart uploads, temporary files."""

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        """Yield unfinished uploads, running or orphaned, whose name starts with `prefix`.

        No listing of objects shows them. Paginated inside.
        """
        ...

    def abort_upload(self, upload: PendingUpload) -> None:
        """Abort an upload and free its parts; one that is gone or completed is success (idempotent)."""
        ...


@runtime_checkable
class ManyDeletes(Protocol):
    """A storage that removes many objects with one request."""

    def delete_many(self, names: Sequence[str]) -> bool:
        """Remove at most MOST_DELETED objects, in any order; a missing one is success (idempotent).

        Returns False where the server has no such request. After every error some may be gone: PermissionDenied if the
        key may not delete one of them, and as `delete`. Unlike `delete` it aborts no uploads of the names.
        """
        ...


@runtime_checkable
class ServerCopies(Protocol):
    """A storage whose server may copy objects of another place by itself."""

    def copy_from(self, origin: ChunkStorage, stored: StoredObject) -> int | None:
        """Copy an object of `origin` under its own name, as `put` would; return the bytes that passed through here.

        Returns None, with nothing copied, where both are not places of one server. Raises AlreadyExists, NotFound and
        EtagDiffers as `compose`.
        """
        ...


@runtime_checkable
class ProvedCopies(Protocol):
    """A storage whose server copies an object by itself, and proves in its answer that the copy has the same bytes."""

    def copy_proved(self, name: str, piece: ObjectPiece, crc32c: int | None, metadata: Mapping[str, str]) -> str | None:
        """Store a whole object of this place under another name; return its etag, None without a copy or a proof.

        `crc32c`: of its stored bytes, if it is known. After None something may be under the name. Raises Archived for
        an object that has to be restored first, EtagDiffers for another version of it, NotFound, and as `put`.
        """
        ...


@runtime_checkable
class Thaws(Protocol):
    """A storage with classes that have to restore an object before it can be read."""

    def thaw(self, name: str, days: int, speed: ThawSpeed) -> bool:
        """Request an object back, to be readable for so many days; return False for one that can be read at once.

        Idempotent: one that is coming back goes on, and one that is back stays for the days from now. Returns before
        it is back: `stat` reports that. Raises NotFound and as `stat`.
        """
        ...


@runtime_checkable
class Renewable(Protocol):
    """A storage whose credentials may be replaced while it is used."""

    def renew_credentials(self) -> bool:
        """Read the credentials again after a refusal; return whether they are others than a moment ago. Never fails."""
        ...


@runtime_checkable
class RangeUrls(Protocol):
    """A storage whose objects any HTTP client can read."""

    def range_url(self, name: str) -> RangeUrl | None:
        """Return a URL for GETs of byte ranges, valid for the next minutes, or None.

        Never waits and never fails; None means: use `read_into`. It is a credential: never log it.
        """
        ...
