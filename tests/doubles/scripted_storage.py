"""A storage that follows a script: it fails, waits, damages bytes or does something else at the calls it is told."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeVar

import trio

from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import ChunkStorage, RangeUrl, StoredObject
from tierfs.engine.chunkstore.wrappers import Wrapped

_Result = TypeVar("_Result")

ALWAYS = range(1, 2**31)
"""The numbers of all calls."""

PATIENCE_S = 60.0
"""A call that is held for longer was forgotten by its test; one that was not made by then will not be."""


class When(Enum):
    """Whether the call has had its effect when the script acts."""

    BEFORE = "before"
    AFTER = "after"
    HALFWAY = "halfway"
    """Reads only: after the first MiB."""


class Read(NamedTuple):
    """A read that was asked for."""

    name: str
    offset: int
    length_bytes: int


@dataclass
class Held:
    """A call that waits until it may continue."""

    begun: threading.Event = field(default_factory=threading.Event)
    may_go_on: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None

    def wait_begun(self) -> None:
        """Return when the call was made."""
        assert self.begun.wait(PATIENCE_S), "this call was not made"

    async def has_begun(self) -> None:
        """Return when the call was made, and let other tasks run meanwhile."""
        await trio.to_thread.run_sync(self.wait_begun)

    def go_on(self, error: Exception | None = None) -> None:
        """Let the call have its result, or the error."""
        self.error = error
        self.may_go_on.set()

    def __call__(self) -> None:
        self.begun.set()
        assert self.may_go_on.wait(PATIENCE_S), "forgotten"
        if self.error is not None:
            raise self.error


@dataclass
class _Step:
    """The effect at some calls of one verb."""

    verb: str
    of: str
    numbers: range
    when: When
    act: Callable[[], object]
    damages_at: int | None = None
    seen: int = 0

    def meets(self, verb: str, name: str) -> bool:
        """Count a call that the step is about, and tell whether it acts on it."""
        if verb != self.verb or self.of not in name:
            return False
        self.seen += 1
        return self.seen in self.numbers


class ScriptedStorage(Wrapped):
    """Passes everything to `inner`, but for the calls that the script is about.

    Verbs are put, compose, read, stat, delete, list, uploads and abort. Calls are counted from the moment the step
    was added; `of` restricts them to names in which it occurs, `on` to one number or a range of them.
    """

    def __init__(self, inner: ChunkStorage | None = None) -> None:
        super().__init__(inner or MemoryStorage())
        self.inner = self._inner
        self.calls: Counter[str] = Counter()
        self.reads: list[Read] = []
        self.origin: str | None = None
        """Of the server that has the objects too; without one every read comes by here."""
        self._steps: list[_Step] = []
        self._lock = threading.Lock()

    def do(
        self, verb: str, act: Callable[[], object], *, on: int | range = 1, when: When = When.BEFORE, of: str = ""
    ) -> None:
        """Call `act`."""
        self._add(_Step(verb, of, _numbers(on), when, act))

    def fail(self, verb: str, error: Exception, *, on: int | range = 1, when: When = When.BEFORE, of: str = "") -> None:
        """Raise `error`."""

        def fail() -> None:
            raise error

        self.do(verb, fail, on=on, when=when, of=of)

    def hold(self, verb: str, *, on: int = 1, when: When = When.BEFORE, of: str = "") -> Held:
        """Let a call wait."""
        held = Held()
        self.do(verb, held, on=on, when=when, of=of)
        return held

    def hold_next(self, count: int, verb: str) -> list[Held]:
        """Let each of the next calls wait for its own leave."""
        return [self.hold(verb, on=number + 1) for number in range(count)]

    def damage(self, at: int, *, on: int | range = 1, of: str = "") -> None:
        """Change the byte of a read's buffer at `at`, which is an index: negative ones count from its end."""
        self._add(_Step("read", of, _numbers(on), When.AFTER, lambda: None, damages_at=at))

    def behave(self) -> None:
        """Forget the script."""
        with self._lock:
            self._steps.clear()

    def read_into(self, name: str, offset: int, buffer: memoryview, **more: Any) -> None:
        self.reads.append(Read(name, offset, len(buffer)))
        steps = self._begin("read", name)
        _act(steps, When.BEFORE)
        if any(step.when is When.HALFWAY for step in steps):
            self.inner.read_into(name, offset, buffer[:MIB], **more)
            _act(steps, When.HALFWAY)
        damages = [step.damages_at for step in steps if step.damages_at is not None]
        progress = more.pop("progress", None)
        self.inner.read_into(name, offset, buffer, **more, progress=None if damages else progress)
        for index in damages:
            buffer[index] ^= 1
        if damages and progress is not None:
            progress(len(buffer))
        _act(steps, When.AFTER)

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """AFTER is once the first object was given."""
        steps = self._begin("list", prefix)
        _act(steps, When.BEFORE)
        for found in self.inner.list(prefix, after=after):
            yield found
            _act(steps, When.AFTER)

    def range_url(self, name: str) -> RangeUrl | None:
        return None if self.origin is None else RangeUrl(self.origin, f"/{name}")

    def _call(self, verb: str, name: str, function: Callable[[], _Result]) -> _Result:
        steps = self._begin(verb, name)
        _act(steps, When.BEFORE)
        result = function()
        _act(steps, When.AFTER)
        return result

    def _add(self, step: _Step) -> None:
        with self._lock:
            self._steps.append(step)

    def _begin(self, verb: str, name: str) -> list[_Step]:
        with self._lock:
            self.calls[verb] += 1
            return [step for step in self._steps if step.meets(verb, name)]


def _act(steps: list[_Step], when: When) -> None:
    for step in steps:
        if step.when is when:
            step.act()


def _numbers(on: int | range) -> range:
    return range(on, on + 1) if isinstance(on, int) else on
