"""BoundedStorage: a storage whose calls end by the deadline in force, however long its provider takes.

A provider's own time-outs bound each request, and `resilient` repeats those: a call of a server that is silent takes
minutes by both. With a deadline in force (system/deadlines.py) a call runs in a thread that is given up then. All that
such a thread has of its caller's is a source, which ends with the wait for it, and no buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.system import deadlines
from tierfs.engine.chunkstore.protocol import OnReceived, PartedSource, Source, StoredObject
from tierfs.engine.chunkstore.wrappers import Wrapped

_Result = TypeVar("_Result")

# Objects of a listing that one call fetches: a page of S3.
_LISTED_AT_ONCE = 1000


class BoundedStorage(Wrapped):
    """Ends each call by the deadline in force; Unavailable then, and whether it happened is not known."""

    def _call(self, verb: str, name: str, function: Callable[[], _Result]) -> _Result:
        if deadlines.current() is None:
            return function()
        return deadlines.bounded(function, f"{self!r}: {verb} {name}")

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        """Put; the source is not read any more once nobody waits: it may be closed by then."""
        if deadlines.current() is not None:
            source = _PartedUntil(source) if isinstance(source, PartedSource) else _Until(source)
        return super().put(name, source, metadata=metadata, create_only=create_only)

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: OnReceived | None = None,
    ) -> None:
        """Read; with a deadline into a buffer of its own first, as a call that was given up may still fill it."""
        if deadlines.current() is None:
            self._inner.read_into(name, offset, buffer, if_match=if_match, progress=progress)
            return

        def read() -> bytearray:
            data = bytearray(len(buffer))
            self._inner.read_into(name, offset, memoryview(data), if_match=if_match)
            return data

        buffer[:] = self._call("read", name, read)
        if progress is not None:
            progress(len(buffer))

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """List; with a deadline a page by each call."""
        listing = self._inner.list(prefix, after=after)
        if deadlines.current() is None:
            yield from listing
            return
        while page := self._call("list", prefix, lambda: [*islice(listing, _LISTED_AT_ONCE)]):
            yield from page


class _Until:
    """A source that ends with the wait for its upload."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    def length_bytes(self) -> int:
        """See Source."""
        return self._source.length_bytes

    def read(self, offset: int, length_bytes: int) -> Buffer:
        """See Source. Raises Unavailable once nobody waits."""
        deadlines.require_time("upload")
        return self._source.read(offset, length_bytes)


class _PartedUntil(_Until):
    """The same of one that has parts."""

    def __init__(self, source: PartedSource) -> None:
        super().__init__(source)
        self.part_lengths = source.part_lengths
