"""Objects of a bucket as they describe themselves, for a recovery that has no journal."""

from __future__ import annotations

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names, object_names
from tierfs.base.words.errors import DataLoss, TierfsError
from tierfs.base.words.storage_classes import USUAL_CLASS
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.metadata import untrusted
from tierfs.engine.metadata.epoch_numbers import MAX_EPOCH

# Far more than the id counter reaches, and it can still count on from there.
_MAX_SEGMENT_ID = 2**62


def compressed_bytes(item: StoredObject) -> int:
    """Return the stored bytes of an object whose name says that it is compressed; 0 for any other."""
    return item.length_bytes if item.name.endswith(object_names.COMPRESSED) else 0


def storage_class(item: StoredObject) -> str:
    """Return the storage class of an object as a record may have it; empty for the usual one."""
    name = item.storage_class
    return name if untrusted.is_storage_class(name) and name != USUAL_CLASS else ""


@dataclass(frozen=True, slots=True)
class FoundObject:
    """One object of a store, as its name, metadata, index or manifest describes it."""

    name: str
    etag: str
    modified_ms: int
    store_id: str
    """Empty if the object does not name it."""
    segment_id: int
    path: str
    start: int
    end: int
    epoch: int
    attempt: str
    crc32c: int | None
    """CRC32C of the segment's bytes; None if neither name nor metadata contain it: a copy of an old object without its
    metadata."""
    pack_bytes: int = 0
    """Plain bytes of the pack that holds the bytes among others; 0 if they are the whole object."""
    object_offset: int = 0
    appended: int = 0
    """Number of the pack among those that appends waited for, the later ones higher; 0 for any other object."""
    compressed_bytes: int = 0
    """Stored bytes of an object that is compressed; 0 for any other."""
    storage_class: str = ""
    """As the server names it; empty for the usual one."""
    in_archive: bool = False
    """Whether it is in the archive place; else in the cold tier."""

    @property
    def length_bytes(self) -> int:
        """Number of the segment's bytes in it."""
        return self.end - self.start

    @property
    def object_bytes(self) -> int:
        """Number of plain bytes of the object."""
        return self.pack_bytes or self.length_bytes

    @property
    def stored(self) -> StoredObject:
        """The object as it was listed."""
        return StoredObject(self.name, self.compressed_bytes or self.object_bytes, self.etag)

    @property
    def label(self) -> str:
        """Its name in reports of objects that were not linked."""
        name = in_archive(self.name) if self.in_archive else self.name
        return f"{name}, {self.path} from {self.start}" if self.pack_bytes else name

    @property
    def key(self) -> tuple[bool, str]:
        """Its place and name: a copy by hand may give both places an object of one name."""
        return self.in_archive, self.name


@dataclass(frozen=True, slots=True)
class Storages:
    """The places that the objects of a store are in."""

    cold: ChunkStorage
    archive: ChunkStorage | None = None
    """The archive place, if there is one."""

    def of(self, item: FoundObject) -> ChunkStorage:
        """Return the place of an object."""
        return self.at(in_archive=item.in_archive)

    def at(self, *, in_archive: bool) -> ChunkStorage:
        """Return the archive place, or the cold tier."""
        if not in_archive:
            return self.cold
        assert self.archive is not None, "an object was listed there"
        return self.archive


def in_archive(name: str) -> str:
    """Return the name of an object of the archive place as reports have it."""
    return f"{name} in the archive place"


@dataclass(frozen=True, slots=True)
class LeftOver:
    """An object that was not linked, and why."""

    name: str
    why: str


def checked_path(item: FoundObject) -> str:
    """Return the name of the segment. Raises DataLoss for an impossible segment or owner."""
    if not (0 < item.segment_id <= _MAX_SEGMENT_ID and 0 < item.epoch <= MAX_EPOCH):
        raise DataLoss("it refers to an impossible segment or owner")
    try:
        path = names.join(names.split(item.path))
    except TierfsError as exc:
        raise DataLoss(f"it refers to an impossible segment: {exc}") from exc
    if path != item.path or not path or names.is_removed(path):
        raise DataLoss("it refers to an impossible segment")
    return path
