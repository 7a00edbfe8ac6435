"""PacedStorage: a storage whose bytes pass no faster than a limit, in each direction.

For work that nobody waits for. An upload waits part by part, as its source is read; what a call costs only afterwards,
as a copy that the server could not make, makes the next one wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.system.throttle import Throttle
from tierfs.engine.chunkstore.protocol import (
    ChunkStorage,
    ComposedObject,
    ObjectPiece,
    OnReceived,
    PartedSource,
    Source,
    StoredObject,
)
from tierfs.engine.chunkstore.wrappers import Wrapped


class TransferPace:
    """The limits of both directions: a link carries both at once."""

    def __init__(self, bytes_per_s: int = 0) -> None:
        self.sent = Throttle(bytes_per_s)
        self.received = Throttle(bytes_per_s)

    def limit(self, bytes_per_s: int) -> None:
        """Change the limit of each direction; 0 for none."""
        self.sent.limit(bytes_per_s)
        self.received.limit(bytes_per_s)

    def end(self) -> None:
        """Let no transfer wait any more; see Throttle."""
        self.sent.end()
        self.received.end()


class PacedStorage(Wrapped):
    """Transfers through `inner` within a pace."""

    def __init__(self, inner: ChunkStorage, pace: TransferPace) -> None:
        super().__init__(inner)
        self._pace = pace

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        sent = self._pace.sent
        paced = _PacedPartedSource(source, sent) if isinstance(source, PartedSource) else _PacedSource(source, sent)
        return super().put(name, paced, metadata=metadata, create_only=create_only)

    def compose(
        self,
        name: str,
        pieces: Sequence[ObjectPiece],
        *,
        metadata: Mapping[str, str] | None = None,
        create_only: bool = True,
    ) -> ComposedObject:
        composed = super().compose(name, pieces, metadata=metadata, create_only=create_only)
        self._pace.sent.charge(composed.client_bytes)
        self._pace.received.charge(composed.client_bytes)
        return composed

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: OnReceived | None = None,
    ) -> None:
        self._pace.received.take(len(buffer))
        super().read_into(name, offset, buffer, if_match=if_match, progress=progress)

    def copy_from(self, origin: ChunkStorage, stored: StoredObject) -> int | None:
        copied = super().copy_from(origin, stored)
        self._pace.sent.charge(copied or 0)
        self._pace.received.charge(copied or 0)
        return copied


class _PacedSource:
    """A source whose bytes wait for the limit before they are sent; those of a retry again."""

    def __init__(self, source: Source, sent: Throttle) -> None:
        self._source = source
        self._sent = sent

    @property
    def length_bytes(self) -> int:
        """See Source."""
        return self._source.length_bytes

    def read(self, offset: int, length_bytes: int) -> Buffer:
        """See Source."""
        self._sent.take(length_bytes)
        return self._source.read(offset, length_bytes)


class _PacedPartedSource(_PacedSource):
    """The same of one that has parts."""

    def __init__(self, source: PartedSource, sent: Throttle) -> None:
        super().__init__(source, sent)
        self.part_lengths = source.part_lengths
