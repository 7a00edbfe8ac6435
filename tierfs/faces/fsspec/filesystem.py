"""TierfsFileSystem: the filesystem that fsspec finds under `tierfs://`."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from glob import has_magic
from hashlib import sha256
from shutil import copyfileobj
from typing import Any

from fsspec.spec import AbstractFileSystem, make_instance
from fsspec.utils import stringify_path

from tierfs.app import verbs
from tierfs.app.connection import CONNECTIONS, Connection, StorePlace
from tierfs.app.open_segment import SegmentHandle
from tierfs.app.sources import STORE_VARIABLE, store_of
from tierfs.app.store import Store
from tierfs.base.words import names
from tierfs.base.words.errors import AlreadyExists, InvalidRequest
from tierfs.base.words.types import ReadPriority
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.faces.fsspec import listing, paths
from tierfs.faces.fsspec.errors import as_os_errors
from tierfs.faces.fsspec.files import APPEND_BYTES, AppendFile, SegmentFile
from tierfs.faces.fsspec.join import GAP_BYTES, join, of_slice

log = logging.getLogger(__name__)

_WRITING = ("ab", "wb", "xb")
_OPTIONS = ("store", "seal", "read_priority", "endpoint_url", "region", "profile")
# Options of fsspec's base class, which some callers give to every filesystem.
_FSSPEC_OPTIONS = {"use_listings_cache", "listings_expiry_time", "max_paths", "asynchronous", "loop"}

_DIGEST_DIGITS = 32


class TierfsFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Segments as files that can be created, appended to and read, not changed.

    Storage options: `store` (a directory, or the URL of a bucket, which is read only), by default what the URL or
    TIERFS_STORE names; `seal` (end each segment that was written); `read_priority`; `endpoint_url`, `region`,
    `profile` of a bucket. An instance may be used by many threads, and in children of fork.
    """

    protocol = paths.PROTOCOL
    root_marker = ""

    def __init__(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        url_store: str | None = None,
        seal: bool = False,
        read_priority: str | None = None,
        endpoint_url: str | None = None,
        region: str | None = None,
        profile: str | None = None,
        **fsspec_options: Any,
    ) -> None:
        """`url_store` is the store that fsspec found in a URL; it must not contradict `store`."""
        unknown = sorted(set(fsspec_options) - _FSSPEC_OPTIONS)
        if unknown:
            raise TypeError(f"unknown storage option {', '.join(unknown)}; known: {', '.join(_OPTIONS)}")
        super().__init__(**fsspec_options)
        self._named = str(stringify_path(store)) if store is not None else url_store
        self._seal = seal
        self._connection: Connection | None = None
        self._connected_to = ""
        with as_os_errors():
            if store is not None and url_store is not None:
                paths.name_in(str(self._named), url_store)
            self._priority = _priority(read_priority)
        self._bucket = {"endpoint_url": endpoint_url, "region": region, "profile": profile}

    @property
    def store(self) -> str:
        """The store's place: a directory, or the URL of a bucket."""
        where = self._named or os.environ.get(STORE_VARIABLE) or ""
        return where if not where or paths.is_url(where) else os.path.abspath(where)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(name) for name in path]
        return paths.strip(str(stringify_path(path)))

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        store = store_of(paths.strip(path))
        return {} if store is None else {"url_store": store}

    def unstrip_protocol(self, name: str) -> str:
        """Return the URL of a path, with the store in it if that is a directory."""
        path = self._strip_protocol(name)
        if paths.is_url(self.store):
            return f"{paths.PROTOCOL}://{path}"
        return f"{paths.PROTOCOL}://{self.store}/{self._name(path)}".rstrip("/")

    def __reduce__(self) -> Any:
        """Return the options, with the store named by a URL or the environment, and nothing that is open."""
        options = {key: value for key, value in self.storage_options.items() if key != "url_store"}
        return make_instance, (type(self), (), {**options, **({"store": self.store} if self.store else {})})

    def close(self) -> None:
        """Release the store, which closes when no file or filesystem uses it; the next call opens it again."""
        self._connection = None

    def invalidate_cache(self, path: str | None = None) -> None:
        """Take in the present journal of a bucket. A store in a directory is always current."""
        super().invalidate_cache(path)
        with as_os_errors():
            self._connected().refresh()

    def info(self, path: str, **_: Any) -> listing.Info:
        """Return name, size, type, kind, mtime, created; of segments also sealed, generation, segment_id, start_offset,
        read_priority and what sets it, read_priority_origin."""
        path = self._strip_protocol(path)
        with as_os_errors():
            return listing.info(self._connected().store.metadata, self._name(path), path, self._priority)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """List a directory, by name; a segment is a list of itself."""
        path = self._strip_protocol(path)
        with as_os_errors():
            infos = listing.children(self._connected().store.metadata, self._name(path), path, self._priority)
        return infos if detail else [info["name"] for info in infos]

    def exists(self, path: str, **_: Any) -> bool:
        """Return whether a segment or directory exists; a store that cannot be opened is an error."""
        try:
            self.info(path)
        except (FileNotFoundError, NotADirectoryError):
            self._connected()
            return False
        return True

    def created(self, path: str) -> datetime:
        """Return the time of creation, in UTC."""
        return datetime.fromtimestamp(self.info(path)["created"], UTC)

    def modified(self, path: str) -> datetime:
        """Return the time of the last append, in UTC."""
        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    def ukey(self, path: str) -> str:
        """Return a key of the present bytes: bytes never change, so the segment and its range identify them."""
        info = self.info(path)
        identity = (self._connected().store.metadata.store_id, info.get("segment_id"), info.get("start_offset"))
        return sha256(repr((*identity, info["size"], info["type"])).encode()).hexdigest()

    def checksum(self, path: str) -> int:
        """Return the same as a number."""
        return int(self.ukey(path)[:_DIGEST_DIGITS], 16)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Return the bytes of a segment, or those of a slice of it."""
        return self._slices(self._strip_protocol(path), [(start, end)])[0]

    def cat_ranges(
        self,
        paths: list[str],
        starts: int | Sequence[int | None] | None,
        ends: int | Sequence[int | None] | None,
        max_gap: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[bytes | Exception]:
        """Return slices of segments. Those of one segment that are close together are read at once.

        `on_error` "return" puts an error in the place of each slice of a segment that cannot be read.
        """
        slices = list(zip(paths, _spread(starts, len(paths)), _spread(ends, len(paths)), strict=True))
        contents: list[bytes | Exception] = [b""] * len(slices)
        for path in dict.fromkeys(paths):
            places = [index for index, (other, *_) in enumerate(slices) if other == path]
            try:
                values: Sequence[bytes | Exception] = self._slices(
                    self._strip_protocol(path), [slices[index][1:] for index in places], max_gap
                )
            except Exception as exc:
                if on_error != "return":
                    raise
                values = [exc] * len(places)
            for index, value in zip(places, values, strict=True):
                contents[index] = value
        return contents

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **options: Any) -> None:
        """Make a segment of some bytes. Raises FileExistsError for one that has bytes, or that exists at all."""
        with self.open(path, "xb" if mode == "create" else "wb", **options) as file:
            file.write(value)

    def touch(self, path: str, truncate: bool = True, **_: Any) -> None:
        """Make an empty segment; one that has bytes stays unchanged, and cannot be truncated."""
        if truncate or not self.exists(path):
            self.pipe_file(path, b"", seal=False)

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Make a directory. Raises FileExistsError if it exists."""
        path = self._strip_protocol(path)
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, f"{names.printable(path)} already exists")
        if not create_parents:
            self.info(self._parent(path))
        self.makedirs(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a directory and those above it."""
        if not exist_ok and self.exists(path):
            raise FileExistsError(errno.EEXIST, f"{names.printable(path)} already exists")
        with as_os_errors(writing=True):
            self._connected().store.engine.make_directory(self._name(self._strip_protocol(path)))

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        if not self.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, f"{names.printable(path)} is not a directory")
        if self.ls(path):
            raise OSError(errno.ENOTEMPTY, f"{names.printable(path)} is not empty; remove it with recursive=True")
        self._remove([path], recursive=True)

    def rm(self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove segments, and with `recursive` directories; names may be patterns."""
        given = [path] if isinstance(path, str) else path
        if maxdepth is not None:
            given = list(reversed(self.expand_path(given, recursive=recursive, maxdepth=maxdepth)))
        matches = [[name] if not has_magic(name) or self.exists(name) else self.expand_path(name) for name in given]
        self._remove([name for some in matches for name in some], recursive=recursive)

    def _rm(self, path: str) -> None:
        self._remove([path], recursive=False)

    def mv(
        self,
        path1: str | list[str],
        path2: str | list[str],
        recursive: bool = False,
        maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        """Give a segment or a directory another name, in one commit; several, and a depth, are copied and removed."""
        if not (isinstance(path1, str) and isinstance(path2, str)) or maxdepth is not None or has_magic(path1):
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)
            return
        old, new = self._strip_protocol(path1), self._strip_protocol(path2)
        if old == new:
            return
        if path2.endswith("/") and not self.isdir(new):  # as of other filesystems: a directory that is to be made
            new = f"{new}/{old.rpartition('/')[2]}"
        store = self._connected().store
        with as_os_errors(writing=True):
            verbs.move(store, self._name(old), self._name(new))
            self._settle(store)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        """Copy a segment's bytes into a new one; of a directory only the directory."""
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        with self.open(path1, "rb") as source, self.open(path2, "wb", **options) as target:
            copyfileobj(source, target, APPEND_BYTES)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        *,
        seal: bool | None = None,
        **_: Any,
    ) -> SegmentFile | AppendFile:
        if mode == "rb":
            with as_os_errors():
                segment, details = self._look(path)
                opened = SegmentHandle(self._connected(), segment, self._priority)
            return SegmentFile(opened, path, details, block_size)
        if mode not in _WRITING:
            raise ValueError(f"unsupported mode {mode!r}: use {', '.join(('rb', *_WRITING))}")
        with as_os_errors(writing=True):
            if not autocommit:
                raise InvalidRequest("fsspec transactions are not supported: appends cannot be undone")
            return self._writer(path, mode, seal=self._seal if seal is None else seal)

    def _writer(self, path: str, mode: str, *, seal: bool) -> AppendFile:
        """Open a segment for writing. Raises AlreadyExists if it would have to be emptied first."""
        connection, name = self._connected(), self._name(path)
        engine, existing = connection.store.engine, None
        if mode != "ab" and self.exists(path):
            existing, _ = self._look(path)
        if existing is not None and (mode == "xb" or existing.length or existing.sealed):
            raise AlreadyExists(
                f"{names.printable(path)} already exists, and segments are append-only",
                remedy="append to it with mode ab, or remove it first",
            )
        if mode == "ab":
            writer = connection.writers.open(name)
        elif existing is None:
            writer = engine.open_writer(name, one_segment=True, new=True)
        else:
            writer = engine.open_writer(name, expected_offset=0, one_segment=True)
        with connection.store.metadata.read() as txn:
            segment = directories.segment(txn, writer.segment_id)
        return AppendFile(connection, writer, segment.start_offset if segment else 0, path, seal=seal)

    def _slices(
        self, path: str, slices: Sequence[tuple[int | None, int | None]], max_gap: int | None = None
    ) -> list[bytes]:
        with as_os_errors():
            opened = SegmentHandle(self._connected(), self._look(path)[0], self._priority)
            with closing(opened):
                joined = join(
                    [of_slice(*bounds, opened.size) for bounds in slices], GAP_BYTES if max_gap is None else max_gap
                )
                wanted = [of_slice(*bounds, opened.size).length_bytes for bounds in slices]
                data = opened.read_ranges(joined.reads)
        return [
            bytes(data[read][start : start + size]) for (read, start), size in zip(joined.places, wanted, strict=True)
        ]

    def _remove(self, some: Sequence[str], *, recursive: bool) -> None:
        store = self._connected().store
        with as_os_errors(writing=True):
            for path in some:
                verbs.delete(store, self._name(self._strip_protocol(path)), recursive=recursive)
            self._settle(store)

    def _settle(self, store: Store) -> None:
        late = verbs.settle(store)
        if late is not None:
            log.info("not published to the bucket yet: %s", late)

    def _look(self, path: str) -> tuple[SegmentRecord, listing.Info]:
        return listing.segment(self._connected().store.metadata, self._name(path), path, self._priority)

    def _name(self, path: str) -> str:
        return paths.name_in(self.store, path)

    def _connected(self) -> Connection:
        """Return the store as this process has it open."""
        store, connection = self.store, self._connection
        stays = connection is not None and not connection.is_inherited and connection.store.metadata.is_present
        if connection is None or not stays or self._connected_to != store:
            where = store if paths.is_url(store) else os.path.realpath(store)
            with as_os_errors():
                connection = CONNECTIONS.get(StorePlace(where if store else "", **self._bucket))
            self._connection, self._connected_to = connection, store
        return connection


def _priority(text: str | None) -> ReadPriority | None:
    if text is None:
        return None
    try:
        return ReadPriority(text)
    except ValueError:
        raise ValueError(f"invalid read_priority {text!r}; expected one of {', '.join(ReadPriority)}") from None


def _spread(value: int | Sequence[int | None] | None, count: int) -> Sequence[int | None]:
    return [value] * count if value is None or isinstance(value, int) else value
