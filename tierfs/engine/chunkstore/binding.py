"""Binding: a place for objects that a package adds, by six methods; and its entry point, `tierfs.storage`.

The name of an entry point is the scheme of the URLs that it serves, and its object takes such a URL and returns a
ChunkStorage. Binding is the easy way to one: what every provider checks, and what can be made of the six, is here.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from typing import ClassVar

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.system import os_errors
from tierfs.base.system.os_errors import Meaning, map_os_errors, meanings
from tierfs.base.words import errors
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.units import format_size
from tierfs.engine.chunkstore import sequential_read, validate
from tierfs.engine.chunkstore.protocol import (
    ChunkStorage,
    ComposedObject,
    ObjectPiece,
    OnReceived,
    Source,
    StoredObject,
    Supports,
)

GROUP = "tierfs.storage"

# Any other number is Unavailable: a place may be back soon.
_MEANINGS = meanings(
    (Meaning(errors.NotFound), (errno.ENOENT, errno.ENOTDIR)),
    (Meaning(errors.AlreadyExists, "already exists"), (errno.EEXIST,)),
    (Meaning(errors.PermissionDenied), (errno.EACCES, errno.EPERM, errno.EROFS)),
    (Meaning(errors.StorageFull, remedy="free space in the cold tier"), tuple(os_errors.NO_ROOM)),
)

# Opens the place that a URL names.
Connect = Callable[[str], ChunkStorage]


class Binding(ABC):
    """A place for objects; a subclass writes the six abstract methods. A ChunkStorage.

    Each of them may be called by several threads at once. They raise NotFound, AlreadyExists, PermissionDenied,
    StorageFull, DataLoss, or Unavailable for what may succeed later; an OSError is taken for the one of its number.
    """

    supports: ClassVar[Supports] = Supports()
    """A subclass whose place lacks something states it here, so that a store refuses early."""

    _closed = False

    @abstractmethod
    def write(self, name: str, blocks: Iterator[Buffer], metadata: Mapping[str, str], *, create_only: bool) -> None:
        """Store an object of these bytes with its metadata, atomically and durably: all of it is seen, or nothing.

        `blocks` raises what is wrong with its bytes: then nothing may be stored. With `create_only`, raise
        AlreadyExists where the name is taken, and of several who create it at once let exactly one succeed. It is
        never set where `supports.create_only` is false.
        """

    @abstractmethod
    def look(self, name: str) -> StoredObject:
        """Return length, ETag, time and metadata of an object. The ETag changes with the bytes. Raises NotFound."""

    @abstractmethod
    def read(self, name: str, offset: int, length_bytes: int) -> Buffer:
        """Return exactly these bytes of an object, which has them: it was looked at. Raises NotFound."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Delete an object; one that is missing is success."""

    @abstractmethod
    def walk(self, prefix: str, after: str) -> Iterator[StoredObject]:
        """Yield the objects whose names begin with `prefix` and are greater than `after`, ascending by UTF-8.

        Their metadata may be missing. The whole prefix counts, not only up to a slash.
        """

    @abstractmethod
    def end(self) -> None:
        """Release what is open. It is called once."""

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        """See ChunkStorage.put. Raises Unavailable where other bytes are stored than were sent.

        Raises PermissionDenied where nothing can be written, and InvalidRequest for a larger object than can be stored.
        """
        self._check(name, metadata)
        self._require_storable(name, source.length_bytes)
        # Advisory: between this look and the write another may create the name. The look after it shows who won.
        is_leased = create_only and not self.supports.create_only
        with map_os_errors(name, _MEANINGS):
            if is_leased and self._is_there(name):
                raise errors.AlreadyExists(f"{printable(name)}: already exists")
            self.write(name, _blocks(name, source), dict(metadata or {}), create_only=create_only and not is_leased)
            stored = self.look(name)
        is_known = validate.ATTEMPT_KEY in (metadata or {})
        if is_leased and is_known and not validate.is_own(stored, metadata or {}, source.length_bytes):
            raise errors.AlreadyExists(f"{printable(name)}: another process wrote it at the same time")
        if stored.length_bytes != source.length_bytes:
            sent = f"{source.length_bytes} bytes were sent, but {stored.length_bytes} are stored"
            raise errors.Unavailable(f"{printable(name)}: {sent}")
        return stored

    def compose(
        self,
        name: str,
        pieces: Sequence[ObjectPiece],
        *,
        metadata: Mapping[str, str] | None = None,
        create_only: bool = True,
    ) -> ComposedObject:
        """See ChunkStorage.compose: the pieces are read, and written again."""
        validate.check_pieces(name, pieces)
        stored = self.put(name, sequential_read.PiecesSource(self, pieces), metadata=metadata, create_only=create_only)
        return ComposedObject.of(stored, client_bytes=validate.composed_bytes(pieces))

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: OnReceived | None = None,
    ) -> None:
        stored = self.stat(name)
        validate.check_etag(name, stored.etag, if_match, stored.length_bytes)
        validate.check_range(stored, offset, len(buffer))
        for start in range(0, len(buffer), validate.STEP_BYTES):
            end = min(start + validate.STEP_BYTES, len(buffer))
            with map_os_errors(name, _MEANINGS):
                buffer[start:end] = self.read(name, offset + start, end - start)
            if progress is not None:
                progress(end)

    def stat(self, name: str) -> StoredObject:
        self._check(name)
        with map_os_errors(name, _MEANINGS):
            return self.look(name)

    def delete(self, name: str) -> None:
        self._check(name)
        if not self.supports.deletes:
            raise errors.PermissionDenied(f"{printable(name)}: nothing can be deleted in this place")
        with map_os_errors(name, _MEANINGS):
            self.remove(name)

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        validate.check_open(self._closed, self)
        return self._listed(prefix, after)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.end()

    def _listed(self, prefix: str, after: str) -> Iterator[StoredObject]:
        with map_os_errors(prefix, _MEANINGS):
            for stored in self.walk(prefix, after):
                yield StoredObject(stored.name, stored.length_bytes, stored.etag, stored.modified_ms)

    def _require_storable(self, name: str, length_bytes: int) -> None:
        if not self.supports.writes:
            raise errors.PermissionDenied(f"{printable(name)}: nothing can be written to this place")
        most = self.supports.max_object_bytes
        if most and length_bytes > most:
            raise InvalidRequest(
                f"{printable(name)}: the place stores objects of at most {format_size(most)}, not of {length_bytes} B",
                remedy="set smaller chunks and objects: tierfs config / chunk_bytes=SIZE object_bytes=SIZE",
            )

    def _is_there(self, name: str) -> bool:
        try:
            self.look(name)
        except (errors.NotFound, FileNotFoundError):
            return False
        return True

    def _check(self, name: str, metadata: Mapping[str, str] | None = None) -> None:
        validate.check_open(self._closed, self)
        validate.check_name(name)
        validate.check_metadata(metadata or {})


def _blocks(name: str, source: Source) -> Iterator[Buffer]:
    for start in range(0, source.length_bytes, validate.STEP_BYTES):
        yield validate.read_source(name, source, start, min(validate.STEP_BYTES, source.length_bytes - start))


def scheme_of(url: str) -> str:
    """Return the scheme of a URL with two slashes, "" for any other text."""
    scheme, separator, _ = url.partition("://")
    return scheme if separator else ""


def is_bound(url: str) -> bool:
    """Return whether an installed package serves URLs of this scheme."""
    return bool(scheme_of(url)) and bool(tuple(entry_points(group=GROUP, name=scheme_of(url))))


def connect(url: str) -> ChunkStorage:
    """Open the place of a URL by the package that serves its scheme.

    Raises InvalidRequest where none is installed, or it fails, and what the binding raises.
    """
    points = tuple(entry_points(group=GROUP, name=scheme_of(url)))
    if not points:
        raise InvalidRequest(
            f"{printable(url)}: no installed package serves {printable(scheme_of(url))}://",
            remedy="tierfs knows s3:// and directories; a package can add others with an entry point tierfs.storage",
        )
    try:
        make: Connect = points[0].load()
        return make(url)
    except (errors.TierfsError, OSError):
        raise
    except Exception as exc:  # code of a user: anything may be raised
        what = f"{printable(points[0].name)}:// is served by {printable(points[0].value)}"
        raise InvalidRequest(
            f"{what}, which fails: {type(exc).__name__}: {exc}", remedy="repair that package, or choose another place"
        ) from exc
