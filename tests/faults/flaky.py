"""Chunk storage that fails where it is told to."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from tierfs.chunkstore.protocol import (
    Abilities,
    ChunkStorage,
    ComposedObject,
    ObjectPiece,
    PendingUpload,
    Progress,
    RangeUrl,
    Source,
    StoredObject,
)
from tierfs.types import MIB

_Result = TypeVar("_Result")


class When(Enum):
    """Whether the call that fails has had its effect."""

    BEFORE = "before"
    AFTER = "after"
    HALFWAY = "halfway"
    """Reads only: after the first MiB."""


@dataclass(frozen=True)
class _Fault:
    verb: str
    number: int
    when: When
    error: Exception


class FlakyChunkStorage:
    """Passes everything to `inner`, except for the calls named with fail()."""

    def __init__(self, inner: ChunkStorage) -> None:
        self.inner = inner
        self.calls: Counter[str] = Counter()
        self._faults: list[_Fault] = []
        self._lock = threading.Lock()

    def fail(self, verb: str, error: Exception, *, on: int | range = 1, when: When = When.BEFORE) -> None:
        """Raise `error` from call number `on` of `verb`, a method's name, counted from now."""
        numbers = [on] if isinstance(on, int) else on
        with self._lock:
            self._faults += [_Fault(verb, self.calls[verb] + number, when, error) for number in numbers]

    @property
    def abilities(self) -> Abilities:
        return self.inner.abilities

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        return self._call("put", lambda: self.inner.put(name, source, metadata=metadata, create_only=create_only))

    def compose(
        self,
        name: str,
        pieces: Sequence[ObjectPiece],
        *,
        metadata: Mapping[str, str] | None = None,
        create_only: bool = True,
    ) -> ComposedObject:
        options = {"metadata": metadata, "create_only": create_only}
        return self._call("compose", lambda: self.inner.compose(name, pieces, **options))  # type: ignore[arg-type]

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        fault = self._begin("read_into")
        if fault is not None and fault.when is When.BEFORE:
            raise fault.error
        if fault is not None and fault.when is When.HALFWAY:
            self.inner.read_into(name, offset, buffer[:MIB], if_match=if_match, progress=progress)
            raise fault.error
        self.inner.read_into(name, offset, buffer, if_match=if_match, progress=progress)
        if fault is not None:
            raise fault.error

    def range_url(self, name: str) -> RangeUrl | None:
        """None: every read comes by here, to fail when it shall."""
        return None

    def stat(self, name: str) -> StoredObject:
        return self._call("stat", lambda: self.inner.stat(name))

    def delete(self, name: str) -> None:
        self._call("delete", lambda: self.inner.delete(name))

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """AFTER fails once the first object was given."""
        fault = self._begin("list")
        if fault is not None and fault.when is When.BEFORE:
            raise fault.error
        for found in self.inner.list(prefix, after=after):
            yield found
            if fault is not None:
                raise fault.error

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        return self._call("uploads", lambda: self.inner.uploads(prefix))

    def abort_upload(self, upload: PendingUpload) -> None:
        self._call("abort", lambda: self.inner.abort_upload(upload))

    def close(self) -> None:
        self.inner.close()

    def _call(self, verb: str, function: Callable[[], _Result]) -> _Result:
        fault = self._begin(verb)
        if fault is not None and fault.when is When.BEFORE:
            raise fault.error
        result = function()
        if fault is not None:
            raise fault.error
        return result

    def _begin(self, verb: str) -> _Fault | None:
        with self._lock:
            self.calls[verb] += 1
            for fault in self._faults:
                if (fault.verb, fault.number) == (verb, self.calls[verb]):
                    return fault
        return None
