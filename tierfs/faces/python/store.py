"""Store: what `tierfs.open_store` returns. Its methods are the verbs of the command line, by the same functions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from tierfs.app.connection import CONNECTIONS, Connection, StorePlace
from tierfs.base.bytes.checksum import Buffer
from tierfs.base.options import policy as policy_text
from tierfs.base.words import names
from tierfs.base.words.errors import Closed, InvalidRequest
from tierfs.base.words.types import Ack, ByteRange, EntryKind, ReadPriority
from tierfs.engine.metadata import directories, policies
from tierfs.engine.segments import stat
from tierfs.faces.python.segment import Name, Reader, Segment, SegmentInfo, Writer

if TYPE_CHECKING:
    from tierfs.app.thaw import ThawReport
    from tierfs.engine.ledger.offloader import Offloader
    from tierfs.engine.segments.delete import Deletion
    from tierfs.engine.segments.rename import Renamed
    from tierfs.faces.python.ledger import Ledger, ManagedLedger
    from tierfs.tiering.archive.command import ArchiveReport
    from tierfs.tiering.consolidate_command import ConsolidateReport
    from tierfs.tiering.evict_command import EvictReport
    from tierfs.tiering.offload_command import OffloadReport


def open_store(
    path: str | os.PathLike[str] | None = None,
    *,
    endpoint_url: str | None = None,
    region: str | None = None,
    profile: str | None = None,
) -> Store:
    """Open a store by its directory, or a bucket's journal by its URL, `s3://BUCKET/PREFIX`, for reading alone.

    Without a path it is the one that TIERFS_STORE names. Stores of one path share one connection in a process. Raises
    InvalidRequest where none is named, NotFound where there is none, PermissionDenied for one that others may write.
    """
    where = "" if path is None else os.fspath(path)
    if where and "://" not in where:
        where = os.path.abspath(where)
    return Store(CONNECTIONS.get(StorePlace(where, endpoint_url, region, profile)))


class Store:
    """An open store. Thread-safe, usable in a child of fork; close it, or use it as a context manager."""

    def __init__(self, connection: Connection) -> None:
        self._connected: Connection | None = connection

    @property
    def path(self) -> str:
        """Its directory; for a bucket's URL that of the replica here."""
        return str(self._connection.store.path)

    def segment(self, name: str) -> Segment:
        """Return a segment by its name, whether or not it exists. Raises InvalidRequest for an impossible name."""
        return Segment(self._connection, name)

    def append(self, name: str, data: Buffer, *, expected_offset: int | None = None, seal: bool = False) -> ByteRange:
        """Append bytes to a segment; see Segment.append."""
        return self.segment(name).append(data, expected_offset=expected_offset, seal=seal)

    def open_writer(
        self, name: str, *, expected_offset: int | None = None, take_over: bool = False, ack: Ack | str | None = None
    ) -> Writer:
        """Become the one writer of a segment; see Segment.open_writer."""
        return self.segment(name).open_writer(expected_offset=expected_offset, take_over=take_over, ack=ack)

    def open(self, name: str, *, read_priority: ReadPriority | str | None = None) -> Reader:
        """Open a segment as a file for reading; see Segment.open."""
        return self.segment(name).open(read_priority=read_priority)

    def info(self, name: str) -> SegmentInfo:
        """Return the facts of a segment. Raises NotFound, IsDirectory."""
        return self.segment(name).info()

    def ls(self, path: str = "") -> list[Name]:
        """List a directory by name; a segment is a list of itself. Raises NotFound."""
        canonical = names.join(names.split(path))
        with self._connection.store.metadata.read() as txn:
            entry = directories.must_find(txn, path)
            above = canonical if entry.kind is EntryKind.DIRECTORY else canonical.rpartition("/")[0]
            return [Name.of(above, item) for item in stat.listing(txn, path)]

    def segments(self, path: str = "") -> Iterator[Segment]:
        """Yield every segment at or below a path, in name order. Raises NotFound."""
        with self._connection.store.metadata.read() as txn:
            below = [name for name, _ in directories.segments_at(txn, path)]
        yield from (self.segment(name) for name in below)

    def ledger(self, name: str) -> Ledger:
        """Open a ledger for reading. Raises NotFound, IsDirectory, InvalidRequest for another segment."""
        from tierfs.faces.python.ledger import Ledger

        return Ledger(self._connection, name)

    def managed_ledger(
        self, path: str, *, offloader: Offloader | None = None, take_over: bool = False
    ) -> ManagedLedger:
        """Become the one writer of a managed ledger: a directory of ledgers, made with the first entry.

        `offloader` is where its ledgers are offloaded to, instead of the store's cold tier. Raises Conflict naming a
        live writer (unless `take_over`), Sealed for one that was terminated, InvalidRequest for a segment.
        """
        from tierfs.faces.python.ledger import ManagedLedger

        return ManagedLedger(self._connection, path, offloader=offloader, take_over=take_over)

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it; one that exists is success. Raises NotDirectory."""
        self._connection.store.engine.make_directory(path)

    def rename(self, source: str, target: str) -> Renamed:
        """Give a segment, a stream or a directory another name, or its own in `target`, if that is a directory.

        Open readers and writers continue. Raises NotFound, AlreadyExists, NotDirectory, InvalidRequest.
        """
        from tierfs.app import verbs

        done = verbs.move(self._connection.store, source, target)
        verbs.settle(self._connection.store)
        return done

    def delete(self, path: str, *, recursive: bool = False, now: bool = False) -> Deletion:
        """Remove a segment, or with `recursive` a directory: into the trash, or `now` for good.

        Raises NotFound, Conflict naming a live writer, IsDirectory without `recursive`.
        """
        from tierfs.app import verbs

        done = verbs.delete(self._connection.store, path, recursive=recursive, now=now)
        verbs.settle(self._connection.store)
        return done

    def offload(self, path: str = "", *, metadata: Mapping[str, str] | None = None) -> OffloadReport:
        """Make every byte at or below a path cold, and return once the bucket's journal names it.

        The objects that it makes have `metadata` in addition to those of tierfs, at most 512 bytes. Raises NoColdTier,
        NotFound, InvalidRequest for metadata that an object cannot have, and the first error of an upload after all
        others were attempted.
        """
        from tierfs.upkeep.holder.perform import perform
        from tierfs.upkeep.holder.verbs import offload_of

        verb, options = offload_of({}, metadata or {})
        return perform(self._connection.store, verb, path, options)

    def evict(self, path: str = "", *, force: bool = False) -> EvictReport:
        """Delete local bytes that are safely cold, `force` also those that policy keeps. Raises as `offload`."""
        from tierfs.upkeep.holder.perform import perform
        from tierfs.upkeep.holder.verbs import EVICT, FORCE, flags

        return perform(self._connection.store, EVICT, path, flags({FORCE: force}))

    def consolidate(self, path: str = "", *, compress: bool = False) -> ConsolidateReport:
        """Join small neighbouring cold objects, and `compress` plain ones where the policy requires it.

        Of the latter the result is a CompressReport. Raises as `offload`.
        """
        from tierfs.upkeep.holder.perform import perform
        from tierfs.upkeep.holder.verbs import COMPRESS, CONSOLIDATE

        store = self._connection.store
        return perform(store, COMPRESS, path) if compress else perform(store, CONSOLIDATE, path)

    def archive(self, path: str = "", *, storage_class: str | None = None, back: bool = False) -> ArchiveReport:
        """Move the cold objects at or below a path to a storage class, else that of the policy archive_class.

        `back` moves them to that of new objects. Raises as `offload`, and InvalidRequest for a place or a class that
        does not allow it, Archived for an object that must be thawed first.
        """
        from tierfs.tiering.archive import classes
        from tierfs.upkeep.holder.perform import perform
        from tierfs.upkeep.holder.verbs import ARCHIVE, STORAGE_CLASS

        store = self._connection.store
        with store.metadata.read() as txn:
            chosen = classes.chosen(txn, path, storage_class, back=back)
        return perform(store, ARCHIVE, path, {STORAGE_CLASS: chosen})

    def thaw(self, path: str = "", *, days: int = 3, speed: str = "standard", wait: bool = False) -> ThawReport:
        """Request the archived objects at or below a path back for some days; `wait` until they can be read.

        `speed` is standard, bulk or expedited. Can be called again. Raises NotFound, InvalidRequest, Unavailable and
        PermissionDenied.
        """
        from tierfs.app.thaw import Thawing
        from tierfs.engine.chunkstore.protocol import ThawSpeed

        if days < 1 or speed not in set(ThawSpeed):
            wanted = f"{days} days at the speed {names.printable(speed)}"
            raise InvalidRequest(
                f"objects cannot be thawed for {wanted}", remedy=f"at least 1 day; one of: {', '.join(ThawSpeed)}"
            )
        thawing = Thawing(self._connection.store, [path])
        done = thawing.look(days=days, speed=ThawSpeed(speed))
        return thawing.wait() if wait else done

    def policy(self, path: str = "") -> Mapping[str, Any]:
        """Return the value of each policy in force at a path. Raises NotFound."""
        with self._connection.store.metadata.read() as txn:
            return {key: held.value for key, held in policies.at(txn, path).all()}

    def set_policy(self, path: str = "", /, **wanted: str | int | float | None) -> None:
        """Set policies at a path, like `chunk_bytes="64MiB"` or `ledger_entries=50_000`; None removes one there.

        A missing path becomes a directory. Raises InvalidRequest for an unknown policy, a value of another kind, or a
        contradiction.
        """
        from tierfs.app import verbs

        given = {key: _as_text(key, value) for key, value in wanted.items() if value is not None}
        values = {key: policy_text.parse(key, text) for key, text in given.items()}
        unset = [key for key, value in wanted.items() if value is None]
        verbs.change_policies(self._connection.store, path, values, unset)

    def close(self) -> None:
        """Release the store, which closes when no other store, reader or writer of this process uses it; idempotent."""
        self._connected = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def _connection(self) -> Connection:
        connection = self._connected
        if connection is None:
            raise Closed("the store is closed", remedy="open it again: tierfs.open_store(path)")
        if connection.is_inherited:  # in a child of fork: locks and connections of its parent are not for two
            connection = self._connected = CONNECTIONS.get(connection.place)
        return connection


def _as_text(key: str, value: object) -> str:
    """Return a policy's value as it is typed. Raises InvalidRequest for one of another type."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise InvalidRequest(f"invalid value {value!r} for policy {key}", remedy="use a text or a number")
