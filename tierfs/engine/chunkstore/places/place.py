"""What the provider asks of a place, and the errors of any place as ours."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from tierfs.base.system import osio
from tierfs.base.words import errors
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.probe import Traits
from tierfs.engine.chunkstore.protocol import OnReceived, PendingUpload, Source, StoredObject
from tierfs.engine.chunkstore.validate import is_relative


class ObjectPlace(Protocol):
    """Objects below a root, by checked names. Thread-safe.

    Raises the builtin OSErrors by their meaning (FileNotFoundError, FileExistsError, PermissionError, others for what
    may pass), those of tierfs.base.words.errors, and its vendors' own, which `meaning` translates.
    """

    traits: Traits
    vendor_errors: tuple[type[Exception], ...]

    def meaning(self, error: Exception) -> type[errors.TierfsError]:
        """Return what a vendor's error means to the caller."""
        ...

    def put(self, name: str, source: Source, metadata: Mapping[str, str], *, create_only: bool) -> StoredObject:
        """Store all of `source`, atomically and durably, and return it as it is there. Raises FileExistsError."""
        ...

    def read_into(
        self, name: str, offset: int, buffer: memoryview, if_match: str | None, progress: OnReceived | None
    ) -> None:
        """See ChunkStorage.read_into. Raises FileNotFoundError."""
        ...

    def stat(self, name: str) -> StoredObject:
        """Return the object with its metadata. Raises FileNotFoundError, also for a directory."""
        ...

    def delete(self, name: str) -> None:
        """Remove the object; a missing one is success."""
        ...

    def list(self, prefix: str, after: str) -> Iterator[StoredObject]:
        """See ChunkStorage.list."""
        ...

    def leftovers(self) -> Iterator[PendingUpload]:
        """Yield what unfinished writes left."""
        ...

    def remove_leftover(self, upload: PendingUpload) -> None:
        """Remove one of them; a missing one is success."""
        ...

    def close(self) -> None:
        """Release connections."""
        ...


_FULL = osio.NO_ROOM
_MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_INVALID = frozenset({errno.ENAMETOOLONG, errno.EINVAL})


@contextmanager
def map_place_errors(place: ObjectPlace, shown: str, name: str = "") -> Iterator[None]:
    """Raise errors of tierfs for what `place`, known as `shown`, raises about the object `name`."""
    subject = printable(f"{shown}/{name}" if name else shown)
    try:
        yield
    except errors.TierfsError as exc:
        exc.remedy = exc.remedy or _REMEDIES.get(type(exc))
        raise
    except place.vendor_errors as exc:  # first: requests' errors are OSErrors, too
        kind = place.meaning(exc)
        raise kind(f"{subject}: {told(exc)}", remedy=_REMEDIES.get(kind)) from exc
    except OSError as exc:
        kind = _kind(exc)
        raise kind(f"{subject}: {told(exc)}", remedy=_REMEDIES.get(kind)) from exc


_REMEDIES: Mapping[type[errors.TierfsError], str] = {
    errors.Unavailable: "check the place (cold.url), its server and the network",
    errors.PermissionDenied: "check who asks: docs/places.md says by what each place knows it",
}


def _kind(error: OSError) -> type[errors.TierfsError]:
    if isinstance(error, _MISSING):
        return errors.NotFound
    if isinstance(error, FileExistsError):
        return errors.AlreadyExists
    if isinstance(error, PermissionError):
        return errors.PermissionDenied
    if error.errno in _FULL:
        return errors.StorageFull
    return errors.InvalidRequest if error.errno in _INVALID else errors.Unavailable


# Longest text of a vendor's error in a message: some carry a whole page of HTML.
_MOST_CHARACTERS = 300


def told(error: Exception) -> str:
    """Return what an error says, in one line."""
    if isinstance(error, _MISSING):
        return "not found"
    if isinstance(error, FileExistsError):
        return "already exists"
    if "Max retries exceeded" in str(error):  # requests', which made one try, and names its own objects
        return f"its server does not answer ({type(error).__name__})"
    text = error.strerror if isinstance(error, OSError) else None  # else the number of the error is in front of it
    lines = (text or str(error)).strip().splitlines()
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def listed_after(objects: Iterable[StoredObject], after: str) -> Iterator[StoredObject]:
    """Yield the objects of a page that a listing wants, without their metadata. Servers begin at a name, not after it.

    Names that are not those of objects are left out: others may have made "directories" there.
    """
    for stored in objects:
        if stored.name > after and is_relative(stored.name):
            yield replace(stored, metadata={})
