"""A bucket in memory with drawn faults: calls fail before or after their effect, half-way, late, or for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from tests.doubles.classed_storage import ClassedStorage
from tests.simulation.points import Points
from tierfs.base.words.errors import AlreadyExists, Unavailable
from tierfs.engine.chunkstore.protocol import BufferSource, OnReceived, Source, StoredObject
from tierfs.engine.chunkstore.wrappers import Wrapped

_HARMLESS = ("read", "list", "stat")
"""Calls that change no object."""

_Result = TypeVar("_Result")


class Toxic(StrEnum):
    """What one call does instead of what was asked for."""

    BEFORE = "before"
    """It fails and has no effect."""
    AFTER = "after"
    """It fails and has its effect."""
    LATE = "late"
    """A PUT fails; its effect is some steps later, after a deletion too."""
    FLIP = "flip"
    """A read delivers one wrong bit, once."""
    HALF = "half"
    """A read breaks off in its middle."""
    STALE = "stale"
    """A listing lacks the newest object."""
    AWAY = "away"
    """This call and all others fail, for some steps."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A toxic at a call, counted from the begin of its step."""

    call: int
    toxic: Toxic
    steps: int = 1
    """Until a late PUT lands, or the storage is back."""


@dataclass(frozen=True, slots=True)
class _LatePut:
    due_step: int
    name: str
    data: bytes
    metadata: Mapping[str, str]
    create_only: bool
    kept_as: str


class SimStorage(Wrapped):
    """What all hosts of a life see of their bucket. Every call is two points: before its effect and after."""

    def __init__(self, inner: ClassedStorage, points: Points) -> None:
        super().__init__(inner)
        self.inner = inner
        self._points = points
        self._fault: Fault | None = None
        self._step = self._calls = 0
        self._back_step = 0
        self._late: list[_LatePut] = []
        self.theirs: dict[str, object] = {}
        """Objects of others, by name: nothing may happen to them."""
        self.faults: dict[str, int] = {}
        """Faults that happened, by their toxic."""
        self._written: dict[str, int] = {}
        """By name, what tells its bytes from others."""
        self.gate: Callable[[SimStorage, str, str], None] | None = None
        """Called before each call, by whichever process makes it."""
        self.used_twice: set[str] = set()
        """Names under which other bytes were written than before."""

    @property
    def fault(self) -> Fault | None:
        """The fault of this step."""
        return self._fault

    def require_theirs(self) -> None:
        """Invariant 5: what others made is there as it was."""
        changed = [name for name, held in self.theirs.items() if self.inner.objects.get(name) is not held]
        assert not changed, f"not ours, and changed: {changed}"

    @property
    def is_away(self) -> bool:
        """Whether no call has an answer."""
        return self._step < self._back_step

    def begin(self, fault: Fault | None = None) -> None:
        """Begin a step: what is late and due lands now."""
        self._step += 1
        self._calls, self._fault = 0, fault
        due = [put for put in self._late if put.due_step <= self._step]
        self._late = [put for put in self._late if put.due_step > self._step]
        for put in due:
            self._land(put)

    def leave(self) -> None:
        """Answer no call from now on."""
        self._back_step = 1 << 60

    def calm(self) -> None:
        """Have no fault from now on: late PUTs land, and the storage is back."""
        self._fault, self._back_step = None, 0
        for put in self._late:
            self._land(put)
        self._late = []

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        def put() -> StoredObject:
            stored = self.inner.put(name, source, metadata=metadata, create_only=create_only)
            self._note(name)
            return stored

        def late() -> StoredObject:
            data = bytes(source.read(0, source.length_bytes))
            due = self._step + (self._fault.steps if self._fault else 1)
            self._late.append(_LatePut(due, name, data, dict(metadata or {}), create_only, self.inner.class_of_new))
            raise _no_answer("put", name)

        return self._call("put", name, put, {Toxic.LATE: late})

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: OnReceived | None = None,
    ) -> None:
        def read() -> None:
            self.inner.read_into(name, offset, buffer, if_match=if_match, progress=progress)

        def flipped() -> None:
            self.inner.read_into(name, offset, buffer, if_match=if_match)
            buffer[len(buffer) // 2] ^= 0x04
            if progress is not None:
                progress(len(buffer))

        def half() -> None:
            part = len(buffer) // 2
            if part:
                self.inner.read_into(name, offset, buffer[:part], if_match=if_match, progress=progress)
            raise _no_answer("read", name)

        self._call("read", name, read, {Toxic.FLIP: flipped if len(buffer) else read, Toxic.HALF: half})

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        def listed() -> list[StoredObject]:
            return [*self.inner.list(prefix, after=after)]

        def stale() -> list[StoredObject]:
            found = listed()
            if prefix.startswith("journal/") or not prefix:  # ownership and moves ask for one that is up to date
                return found
            newest = max(found, key=lambda stored: stored.modified_ms, default=None)
            return [stored for stored in found if stored is not newest]

        yield from self._call("list", prefix, listed, {Toxic.STALE: stale})

    def _call(
        self,
        verb: str,
        name: str,
        function: Callable[[], _Result],
        toxics: Mapping[Toxic, Callable[[], _Result]] | None = None,
    ) -> _Result:
        assert verb in _HARMLESS or name not in self.theirs, f"{verb} {name}, which is not ours"
        if self.gate is not None:
            self.gate(self, verb, name)
        if not self._points.armed:
            return function()
        self._points.reach(verb)
        self._calls += 1
        if self.is_away:
            raise _no_answer(verb, name)
        fault = self._fault
        if fault is None or fault.call != self._calls:
            result = function()
        else:
            self.faults[fault.toxic] = self.faults.get(fault.toxic, 0) + 1
            result = self._poisoned(fault, verb, name, function, toxics or {})
        self._points.reach(f"{verb} done")
        return result

    def _poisoned(
        self,
        fault: Fault,
        verb: str,
        name: str,
        function: Callable[[], _Result],
        toxics: Mapping[Toxic, Callable[[], _Result]],
    ) -> _Result:
        if fault.toxic in toxics:
            return toxics[fault.toxic]()
        if fault.toxic is Toxic.AWAY:
            self._back_step = self._step + fault.steps
        if fault.toxic in (Toxic.BEFORE, Toxic.AWAY):
            raise _no_answer(verb, name)
        result = function()
        if fault.toxic is Toxic.AFTER:
            raise _no_answer(verb, name)
        return result

    def _land(self, put: _LatePut) -> None:
        with suppress(AlreadyExists), self.inner.keeping_as(put.kept_as):  # the server tells nobody
            self.inner.put(put.name, BufferSource(put.data), metadata=put.metadata, create_only=put.create_only)
            self._note(put.name)

    def _note(self, name: str) -> None:
        digest = hash(self.inner.objects[name].data)
        if self._written.setdefault(name, digest) != digest:
            self.used_twice.add(name)


def _no_answer(verb: str, name: str) -> Unavailable:
    return Unavailable(f"{verb} {name}: no answer (simulated)")
