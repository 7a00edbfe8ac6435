"""The cold tier in a place that fsspec reaches: the contract's checks, listings and compositions, for all of them.

Where a place cannot refuse a name that is taken, an advisory lease stands in: a look before the write and another one
after it, at the id of the attempt that won. It keeps two owners apart unless both write within one such round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tierfs.base.words.errors import AlreadyExists, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore import protocol, sequential_read, validate
from tierfs.engine.chunkstore.places.place import Concatenates, DeletesMany, ObjectPlace
from tierfs.engine.chunkstore.places.place_errors import map_place_errors
from tierfs.engine.chunkstore.probe import Traits


class PlaceStorage:
    """ChunkStorage and Uploads over one place."""

    def __init__(self, place: ObjectPlace, url: str, abilities: protocol.Abilities | None = None) -> None:
        """Use `place`, which is closed with this storage and known as `url`; `abilities` are those probed before."""
        self.place = place
        self._url = url
        self._create_only = abilities is None or abilities.create_only_put
        self._closed = False

    def __repr__(self) -> str:
        return printable(self._url)

    @property
    def traits(self) -> Traits:
        """By which means the place does what not every place can."""
        return self.place.traits

    def put(
        self, name: str, source: protocol.Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> protocol.StoredObject:
        self._check(name)
        metadata = metadata or {}
        validate.check_metadata(metadata)
        with map_place_errors(self.place, self._url, name):
            if create_only and not self._create_only:
                return self._put_by_lease(name, source, metadata)
            return self.place.put(name, source, metadata, create_only=create_only)

    def _put_by_lease(self, name: str, source: protocol.Source, metadata: Mapping[str, str]) -> protocol.StoredObject:
        try:
            self.place.stat(name)
        except FileNotFoundError:
            self.place.put(name, source, metadata, create_only=False)
            stored = self.place.stat(name)
            if validate.ATTEMPT_KEY not in metadata or validate.is_own(stored, metadata, source.length_bytes):
                return stored
        raise AlreadyExists(f"{printable(name)}: already exists")

    def compose(
        self,
        name: str,
        pieces: Sequence[protocol.ObjectPiece],
        *,
        metadata: Mapping[str, str] | None = None,
        create_only: bool = True,
    ) -> protocol.ComposedObject:
        """See ChunkStorage.compose. The bytes pass through here, unless the server joins whole objects."""
        validate.check_pieces(name, pieces)
        joined = self._concat(name, pieces, metadata or {}) if create_only and self._create_only else None
        if joined is not None:
            return joined
        # Before anything is written: a missing or replaced object must not cost an upload.
        sources = {name: self.stat(name) for name in {piece.name for piece in pieces}}
        for piece in pieces:
            stored = sources[piece.name]
            validate.check_etag(piece.name, stored.etag, piece.etag, stored.length_bytes)
            validate.check_range(stored, piece.offset, piece.length_bytes)
        source = sequential_read.PiecesSource(self, pieces)
        made = self.put(name, source, metadata=metadata, create_only=create_only)
        return protocol.ComposedObject.of(made, client_bytes=made.length_bytes)

    @property
    def supports(self) -> protocol.Supports:
        """See StatesSupport."""
        return protocol.Supports(concat=isinstance(self.place, Concatenates) and self.place.concatenates)

    def _concat(
        self, name: str, pieces: Sequence[protocol.ObjectPiece], metadata: Mapping[str, str]
    ) -> protocol.ComposedObject | None:
        """Have the server join whole objects whose bytes may move; None where it cannot, or they may not."""
        place, names = self.place, {piece.name for piece in pieces}
        if not isinstance(place, Concatenates) or not all(piece.may_move for piece in pieces):
            return None
        if len(pieces) < 2 or len(names) < len(pieces) or name in names:
            return None
        self._check(name)
        validate.check_metadata(metadata)
        with map_place_errors(place, self._url, name):
            made = place.concat(name, pieces, metadata)
        return None if made is None else protocol.ComposedObject.of(made, moved=True)

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: protocol.OnReceived | None = None,
    ) -> None:
        self._check(name)
        if offset < 0:
            raise InvalidRequest(f"{printable(name)}: offset {offset} is negative")
        with map_place_errors(self.place, self._url, name):
            self.place.read_into(name, offset, buffer, if_match, progress)

    def stat(self, name: str) -> protocol.StoredObject:
        self._check(name)
        with map_place_errors(self.place, self._url, name):
            return self.place.stat(name)

    def delete(self, name: str) -> None:
        self._check(name)
        with map_place_errors(self.place, self._url, name):
            try:
                self.place.delete(name)
            except (FileNotFoundError, NotADirectoryError):
                return

    def delete_many(self, names: Sequence[str]) -> bool:
        """See ManyDeletes.delete_many."""
        for name in names:
            self._check(name)
        if not isinstance(self.place, DeletesMany):
            return False
        with map_place_errors(self.place, self._url, names[0]):
            return self.place.delete_many(names)

    def list(self, prefix: str, *, after: str = "") -> Iterator[protocol.StoredObject]:
        """See ChunkStorage.list. Names that are not those of objects are left out."""
        validate.check_open(self._closed, self)
        with map_place_errors(self.place, self._url, prefix):
            yield from self.place.list(prefix, after)

    def uploads(self, prefix: str) -> Iterator[protocol.PendingUpload]:
        """See Uploads.uploads: temporary files, whose final names are unknown."""
        validate.check_open(self._closed, self)
        with map_place_errors(self.place, self._url):
            for upload in self.place.leftovers():
                if upload.name.startswith(prefix):
                    yield upload

    def abort_upload(self, upload: protocol.PendingUpload) -> None:
        with map_place_errors(self.place, self._url, upload.name):
            self.place.remove_leftover(upload)

    def probe_abilities(self, name: str) -> protocol.Abilities:
        """See ProbeableStorage: whether a name that is taken is refused, by experiment and without the lease."""
        self._check(name)
        with map_place_errors(self.place, self._url, name):
            self.place.put(name, protocol.BufferSource(b"first"), {}, create_only=False)
            try:
                self.place.put(name, protocol.BufferSource(b"second"), {}, create_only=True)
            except (FileExistsError, AlreadyExists):
                return protocol.Abilities()
        return protocol.Abilities(create_only_put=False, create_only_multipart=False)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.place.close()

    def _check(self, name: str) -> None:
        validate.check_name(name)
        validate.check_open(self._closed, self)
