"""Objects as files of a file system that has a rename and no metadata of its own (`files`).

Order of a write, crash by crash: bytes under a temporary name -> metadata in a file of its own, named by the version
of the object that it describes -> the object's name, by a rename that refuses a taken one. So a reader sees all of an
object or none, and its metadata before itself; a writer that loses the race for a name harms no other.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.bytes.parallel import Pool
from tierfs.base.words.errors import DataLoss, InvalidRequest, TierfsError, Unavailable
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.directory.listing import WantedNames, walk
from tierfs.engine.chunkstore.directory.metadata import MAX_SIDECAR_BYTES, parse_metadata
from tierfs.engine.chunkstore.places.files import Files, FileStatus, JoinsFiles
from tierfs.engine.chunkstore.places.joined_files import ALIASES, JOINS, HeldBytes, JoinedFiles
from tierfs.engine.chunkstore.protocol import (
    BufferSource,
    ObjectPiece,
    OnReceived,
    PendingUpload,
    Source,
    StoredObject,
)
from tierfs.engine.chunkstore.validate import check_etag, check_range

_TEMPORARY = ".tmp"
_METADATA = ".metadata"
_HIDDEN = frozenset({_TEMPORARY, _METADATA, ALIASES, JOINS})
_PREFIX = "tierfs-"
_NAME = re.compile(rf"{_PREFIX}[0-9a-f]{{32}}(-(?P<digest>[0-9a-f]{{64}}))?(\.[0-9]+)?")

# Key of the object's name beside its metadata: whoever removes an unfinished write looks for the object.
_OF = ""

# A part of a large object: a block of HDFS, so that joined parts are whole blocks.
PART_BYTES = 128 * 1024 * 1024

# Parts written side by side: a guess, as many as a near server gets of S3's parts.
_PARTS_AT_ONCE = 4

# More writers of one name at once are none of ours.
_VERSIONS = 64

# Another writer may remove the emptied directory between our making it and our rename; it cannot do so forever.
_RENAMES = 10

_Entries = list[tuple[bytes, StoredObject | None]]


class FilePlace:
    """ObjectPlace over files below a root."""

    def __init__(
        self,
        files: Files,
        root: str,
        encode: Callable[[str], str] = str,
        decode: Callable[[str], str] = str,
        *,
        has_joined: bool = False,
    ) -> None:
        """Use `files` below `root`, "" or an absolute path; `encode` makes a name one that they take.

        `has_joined`: there may be objects that a server joined (`joined_files`), by these files or by others.
        """
        self.traits = files.traits
        self.vendor_errors = files.vendor_errors
        self.meaning = files.meaning
        self.files = files
        self._root = root.rstrip("/")
        self._encode = encode
        self._decode = decode
        self._joined = JoinedFiles(files, self._root, encode) if has_joined else None

    @property
    def concatenates(self) -> bool:
        """See Concatenates."""
        return self._joined is not None and isinstance(self.files, JoinsFiles)

    def concat(self, name: str, pieces: Sequence[ObjectPiece], metadata: Mapping[str, str]) -> StoredObject | None:
        """See Concatenates."""
        if self._joined is None:
            return None
        sources: list[tuple[str, FileStatus]] = []
        for piece in pieces:
            try:
                status = self.files.status(self._path(piece.name))
            except FileNotFoundError:  # joined before, so an alias; or gone
                return None
            is_whole = (piece.offset, piece.length_bytes) == (0, status.length_bytes)
            if not is_whole or piece.etag != _described(piece.name, status).etag:
                return None
            sources.append((piece.name, status))
        with suppress(FileNotFoundError):
            self.files.status(self._path(name))
            raise FileExistsError(name)
        joined = self._joined.join(name, sources)
        if joined is not None and metadata:
            joined = self._with_sidecar(self._path(name), name, joined, metadata)
        return None if joined is None else _described(name, joined, metadata)

    def put(self, name: str, source: Source, metadata: Mapping[str, str], *, create_only: bool) -> StoredObject:
        temporary = f"{self._root}/{_TEMPORARY}/{_PREFIX}{uuid.uuid4().hex}-{_digest(name)}"
        sidecar = status = None
        try:
            status = self._written(temporary, name, source)
            if not create_only:
                status = self._unlike_before(temporary, name, status)
            if metadata:
                status = self._with_sidecar(temporary, name, status, metadata)
                sidecar = self._sidecar(_digest(name), status)
            self._rename(temporary, name, create_only=create_only)
        except BaseException as exc:
            was_left = self._try_to_remove(temporary)
            # After any other error the object may have its name, and be without the temporary one: the server's
            # answer was lost. Once that is removed, the object is there or never will be.
            if sidecar is not None and (
                isinstance(exc, FileExistsError) or (was_left and not self._is_there(name, status))
            ):
                self._try_to_remove(sidecar)
            raise
        return _described(name, status, metadata)

    def _written(self, temporary: str, name: str, source: Source) -> FileStatus:
        files = self.files
        if isinstance(files, JoinsFiles) and source.length_bytes > PART_BYTES:
            starts = range(0, source.length_bytes, PART_BYTES)
            parts = [temporary, *(f"{temporary}.{number}" for number in range(1, len(starts)))]

            def write(part: tuple[str, int]) -> None:
                path, start = part
                files.write(path, _PartOfSource(source, start, min(PART_BYTES, source.length_bytes - start)))

            try:
                with Pool(min(_PARTS_AT_ONCE, len(parts)), "parts of a file") as pool:
                    pool.run(write, zip(parts, starts, strict=True))
                files.join(temporary, parts[1:])
            except BaseException:
                for path in parts[1:]:
                    self._try_to_remove(path)
                raise
        else:
            files.write(temporary, source)
        status = files.status(temporary)
        if status.length_bytes != source.length_bytes:
            raise DataLoss(f"{printable(name)}: {status.length_bytes} of {source.length_bytes} bytes arrived")
        return status

    def _unlike_before(self, temporary: str, name: str, status: FileStatus) -> FileStatus:
        """Give the new version another time than the one it replaces: two of one size would share an etag."""
        try:
            before = self.files.status(self._path(name))
        except FileNotFoundError:
            return status
        if before != status:
            return status
        self.files.set_modified(temporary, before.modified_ms + self.files.resolution_ms)
        return self.files.status(temporary)

    def _with_sidecar(self, temporary: str, name: str, status: FileStatus, metadata: Mapping[str, str]) -> FileStatus:
        """Write the metadata of a version that no other writer of the name has, and return its status.

        Two writers at once of as many bytes may have the same time: the second one takes another, or it would replace
        the metadata of the one that wins the name.
        """
        text = BufferSource(json.dumps({**metadata, _OF: name}).encode())
        for attempts_left in reversed(range(_VERSIONS)):
            try:
                self.files.write(self._sidecar(_digest(name), status), text, create_only=True)
                return status
            except FileExistsError:
                if not attempts_left:
                    raise Unavailable(f"{printable(name)}: too many parallel writers") from None
                self.files.set_modified(temporary, status.modified_ms + self.files.resolution_ms)
                status = self.files.status(temporary)
        raise AssertionError("unreachable")

    def _rename(self, temporary: str, name: str, *, create_only: bool) -> None:
        path = self._path(name)
        for attempts_left in reversed(range(_RENAMES)):
            try:
                self.files.rename(temporary, path, overwrite=not create_only)
                return
            except FileNotFoundError:
                if not attempts_left:
                    raise
                self.files.make_directories(path.rpartition("/")[0])

    def _try_to_remove(self, path: str) -> bool:
        """Remove a file after an error, which is reported instead of that of the removal; return whether it was there.

        `gc` lists temporary files that stay.
        """
        with suppress(OSError, TierfsError, *self.vendor_errors):
            self.files.remove(path)
            return True
        return False

    def _is_there(self, name: str, status: FileStatus | None) -> bool:
        """Return whether an object may be this version."""
        with suppress(OSError, TierfsError, *self.vendor_errors):
            try:
                return self.files.status(self._path(name)) == status
            except FileNotFoundError:
                return False
        return True

    def read_into(
        self, name: str, offset: int, buffer: memoryview, if_match: str | None, progress: OnReceived | None
    ) -> None:
        held = self._located(name)
        stored = _described(name, held.status)
        check_etag(name, stored.etag, if_match, stored.length_bytes)
        check_range(stored, offset, len(buffer))
        if not buffer:
            return
        try:
            self.files.read_into(held.path, held.offset + offset, buffer, progress)
        except FileNotFoundError:  # joined, or renamed to a body, after it was located
            again = self._located(name)
            if again.path == held.path or again.status != held.status:
                raise
            self.files.read_into(again.path, again.offset + offset, buffer, progress)

    def _located(self, name: str) -> HeldBytes:
        path = self._path(name)
        return HeldBytes(self.files.status(path), path) if self._joined is None else self._joined.locate(name)

    def stat(self, name: str) -> StoredObject:
        status = self._located(name).status
        return _described(name, status, self._metadata(name, status))

    def delete(self, name: str) -> None:
        """See ObjectPlace.delete. Also removes directories that become empty."""
        path = self._path(name)
        if self._joined is not None:
            status = self._joined.delete(name)
        else:
            status = self.files.status(path)
            self.files.remove(path)
        with suppress(FileNotFoundError):
            self.files.remove(self._sidecar(_digest(name), status))
        parent = name.rpartition("/")[0]
        while parent and self.files.remove_empty(self._path(parent)):
            parent = parent.rpartition("/")[0]

    def list(self, prefix: str, after: str) -> Iterator[StoredObject]:
        return (stored for _, stored in walk(self._entries, prefix, after, _HIDDEN))

    def _entries(self, directory: str, wanted: WantedNames) -> _Entries:
        listed = self._wanted(directory, self.files.entries(self._path(directory)), wanted)
        if self._joined is not None:
            # After the files: a file that a join takes away meanwhile is an alias already.
            known = {key for key, _ in listed}
            aliases = self._wanted(directory, self._joined.entries(directory), wanted)
            listed += [entry for entry in aliases if entry[0] not in known]
        return listed

    def _wanted(
        self, directory: str, entries: Iterable[tuple[str, FileStatus | None]], wanted: WantedNames
    ) -> _Entries:
        listed: _Entries = []
        with suppress(FileNotFoundError, NotADirectoryError):
            for entry, status in entries:
                name = self._decode(entry)
                try:
                    key, full = name.encode(), (directory + name).encode()
                except UnicodeEncodeError:  # of somebody else: names of objects are text
                    continue
                if status is None and wanted.may_hold(full + b"/"):
                    listed.append((key + b"/", None))
                elif status is not None and wanted.may_hold(full):
                    listed.append((key, _described(directory + name, status)))
        return listed

    def leftovers(self) -> Iterator[PendingUpload]:
        """See ObjectPlace.leftovers: temporary files, whose final names are unknown."""
        with suppress(FileNotFoundError):
            for entry, status in self.files.entries(f"{self._root}/{_TEMPORARY}"):
                if status is not None and _NAME.fullmatch(entry):
                    yield PendingUpload(f"{_TEMPORARY}/{entry}", entry, status.modified_ms)
        if self._joined is not None:
            for entry, status in self._joined.unsettled():
                yield PendingUpload(f"{JOINS}/{entry}", entry, status.modified_ms)

    def remove_leftover(self, upload: PendingUpload) -> None:
        """See ObjectPlace.remove_leftover. Also removes its metadata, unless the object has got its name."""
        if self._joined is not None and upload.name == f"{JOINS}/{upload.upload_id}":
            self._joined.settle_list(upload.upload_id)
            return
        named = _NAME.fullmatch(upload.upload_id)
        if named is None:
            return
        path = f"{self._root}/{_TEMPORARY}/{upload.upload_id}"
        with suppress(FileNotFoundError):
            status = self.files.status(path)
            self.files.remove(path)
            if named["digest"] is not None:
                sidecar = self._sidecar(named["digest"], status)
                if self._is_of_no_object(sidecar, status):
                    self.files.remove(sidecar)

    def _is_of_no_object(self, sidecar: str, status: FileStatus) -> bool:
        """Return whether metadata is there, and no object has it: that of a write which is over."""
        try:
            name = self._text(sidecar, sidecar).get(_OF)
        except DataLoss:  # the writer ended as it wrote it, so no object got its name after it
            return True
        # SFTP has a moment with both names. An object that gets its name later had another temporary file.
        return name is not None and not self._is_there(name, status)

    def close(self) -> None:
        self.files.close()

    def _path(self, name: str) -> str:
        if name.split("/", 1)[0] in _HIDDEN:
            raise InvalidRequest(f"{printable(name)}: this name is reserved")
        return f"{self._root}/{self._encode(name)}".rstrip("/") or "/"

    def _sidecar(self, digest: str, status: FileStatus) -> str:
        # In 256 directories: HDFS has at most a million names in one.
        version = f"{digest}-{status.modified_ms}-{status.length_bytes}"
        return f"{self._root}/{_METADATA}/{digest[:2]}/{version}"

    def _metadata(self, name: str, status: FileStatus) -> Mapping[str, str]:
        text = self._text(name, self._sidecar(_digest(name), status))
        text.pop(_OF, None)
        return text

    def _text(self, name: str, sidecar: str) -> dict[str, str]:
        """Return what a file of metadata says, `name` for errors; nothing if there is none."""
        try:
            length_bytes = self.files.status(sidecar).length_bytes
            buffer = memoryview(bytearray(min(length_bytes, MAX_SIDECAR_BYTES + 1)))
            if buffer:
                self.files.read_into(sidecar, 0, buffer, None)
        except FileNotFoundError:
            return {}
        return parse_metadata(name, bytes(buffer))


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


class _PartOfSource:
    """A part of a Source."""

    def __init__(self, source: Source, start: int, length_bytes: int) -> None:
        self._source = source
        self._start = start
        self.length_bytes = length_bytes

    def read(self, offset: int, length_bytes: int) -> Buffer:
        return self._source.read(self._start + offset, length_bytes)


def _described(name: str, status: FileStatus, metadata: Mapping[str, str] | None = None) -> StoredObject:
    """Return the description of a file; the etag is its time and size, which a copy keeps, as distcp -pt does."""
    etag = f"{status.modified_ms:x}-{status.length_bytes:x}"
    return StoredObject(name, status.length_bytes, etag, status.modified_ms, dict(metadata or {}))
