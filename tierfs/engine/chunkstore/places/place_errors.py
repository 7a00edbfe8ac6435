"""Errors of any place as those of tierfs, each with its remedy."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tierfs.base.system import os_errors
from tierfs.base.words import errors
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.places.place import ObjectPlace

_FULL = os_errors.NO_ROOM
_MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_INVALID = frozenset({errno.ENAMETOOLONG, errno.EINVAL})

_REMEDIES: Mapping[type[errors.TierfsError], str] = {
    errors.Unavailable: "check the place (cold.url), its server and the network",
    errors.PermissionDenied: "check the credentials: docs/places.md lists those of each place",
}

# Longest text of a vendor's error in a message: some carry a whole page of HTML.
_MOST_CHARACTERS = 300


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


def told(error: Exception) -> str:
    """Return what an error says, in one line."""
    if isinstance(error, _MISSING):
        return "not found"
    if isinstance(error, FileExistsError):
        return "already exists"
    if "Max retries exceeded" in str(error):  # requests', which made one try, and names its own objects
        return f"its server does not respond ({type(error).__name__})"
    text = error.strerror if isinstance(error, OSError) else None  # else the number of the error is in front of it
    lines = (text or str(error)).strip().splitlines()
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
