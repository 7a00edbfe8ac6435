"""The contract between the provider and a place, and the pages of a place's listing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from tierfs.base.words import errors
from tierfs.engine.chunkstore.probe import Traits
from tierfs.engine.chunkstore.protocol import ObjectPiece, OnReceived, PendingUpload, Source, StoredObject
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


@runtime_checkable
class Concatenates(Protocol):
    """A place whose server joins objects without copying them."""

    @property
    def concatenates(self) -> bool:
        """Whether it can, as it was opened."""
        ...

    def concat(self, name: str, pieces: Sequence[ObjectPiece], metadata: Mapping[str, str]) -> StoredObject | None:
        """Make an object of whole objects, whose bytes move into it; their names stay readable until they are deleted.

        Returns None, with nothing changed, where the server cannot. Raises FileExistsError for a taken name.
        """
        ...


@runtime_checkable
class DeletesMany(Protocol):
    """A place whose server removes many objects with one request."""

    def delete_many(self, names: Sequence[str]) -> bool:
        """See ManyDeletes.delete_many; of any number of names, in as many requests as they need."""
        ...


def listed_after(objects: Iterable[StoredObject], after: str) -> Iterator[StoredObject]:
    """Yield the objects of a page that a listing wants, without their metadata. Servers begin at a name, not after it.

    Names that are not those of objects are left out: others may have made "directories" there.
    """
    for stored in objects:
        if stored.name > after and is_relative(stored.name):
            yield replace(stored, metadata={})
