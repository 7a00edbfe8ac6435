"""What a store must hold, in memory: the bytes of every segment, their begin, and what the trash keeps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

Shown = tuple[int, int, bool, int]
"""Start, end, whether it is sealed, and the number of entries of a ledger: those of no bytes show in nothing else."""


class Stamp(NamedTuple):
    """When something is written, and the number of its first byte among all of a life."""

    at_s: float
    """By a clock that nobody sets."""
    number: int


class Part(NamedTuple):
    """Bytes of a segment that were written together."""

    end: int
    shift: int
    """From their offsets to their numbers, which they keep in whichever segment they are."""
    at_s: float


@dataclass(frozen=True, slots=True)
class Content:
    """One segment: all bytes it ever had, from offset 0 on."""

    data: bytes = b""
    start: int = 0
    sealed: bool = False
    is_ledger: bool = False
    entries: tuple[bytes, ...] = ()
    """Of a ledger; its bytes are those of all entries."""
    written: tuple[Part, ...] = ()

    @property
    def shown(self) -> Shown:
        """What a listing says of it."""
        return self.start, len(self.data), self.sealed, len(self.entries)

    def appended(self, data: bytes, stamp: Stamp) -> Content:
        """Return it with more bytes, unsealed."""
        longer = self.data + data
        part = Part(len(longer), stamp.number - len(self.data), stamp.at_s)
        return replace(self, data=longer, sealed=False, written=(*self.written, part))

    def joined(self, other: Content) -> Content:
        """Return it with the bytes of another behind it, which stay what they are."""
        by = len(self.data) - other.start
        moved = (Part(part.end + by, part.shift - by, part.at_s) for part in other.written if part.end > other.start)
        return replace(self, data=self.data + other.data[other.start :], written=(*self.written, *moved))

    def until(self, end: int) -> Content:
        """Return it without the bytes behind an offset."""
        first, kept = 0, list[Part]()
        for part in self.written:
            if first < end:
                kept.append(part._replace(end=min(part.end, end)))
            first = part.end
        return replace(self, data=self.data[:end], written=tuple(kept))

    def cloned(self, end: int, stamp: Stamp) -> Content:
        """Return a copy of the bytes before an offset: as old as they are, and others to those who read both."""
        copied = self.until(end)
        written = tuple(part._replace(shift=stamp.number) for part in copied.written)
        return replace(copied, sealed=False, written=written)

    def numbers(self, start: int, end: int) -> set[int]:
        """Return the numbers of bytes."""
        numbers, first = set[int](), 0
        for part in self.written:
            numbers.update(range(max(start, first) + part.shift, min(end, part.end) + part.shift))
            first = part.end
        return numbers


@dataclass(frozen=True, slots=True)
class Removed:
    """A segment in the trash."""

    content: Content
    due_ms: int
    """From then on it may be gone."""


@dataclass(frozen=True, slots=True)
class Model:
    """The acknowledged state. Never changed: a verb makes the next one."""

    live: dict[str, Content] = field(default_factory=dict)
    trash: dict[str, tuple[Removed, ...]] = field(default_factory=dict)
    """By name, the newest removal last."""

    @property
    def shown(self) -> dict[str, Shown]:
        """What a listing of the whole store says."""
        return {name: content.shown for name, content in self.live.items()}

    def put(self, name: str, content: Content) -> Model:
        """Return it with another content of a segment."""
        return replace(self, live={**self.live, name: content})

    def gone(self, name: str) -> Model:
        """Return it without a segment."""
        return replace(self, live={key: content for key, content in self.live.items() if key != name})

    def removed(self, name: str, due_ms: int) -> Model:
        """Return it with a segment in the trash."""
        kept = (*self.trash.get(name, ()), Removed(self.live[name], due_ms))
        return replace(self.gone(name), trash={**self.trash, name: kept})

    def ended(self, name: str, left: int) -> Model:
        """Return it with so many removals of a name: those are gone that were due first."""
        by_time = sorted(self.trash.get(name, ()), key=lambda removal: -removal.due_ms)
        kept = tuple(removal for removal in self.trash.get(name, ()) if removal in by_time[:left])
        return self._with_trash(name, kept)

    def restored(self, name: str) -> Model:
        """Return it with the newest removal of a name back."""
        newest = self.trash[name][-1].content
        return self.put(name, newest).forgotten(name)

    def forgotten(self, name: str) -> Model:
        """Return it without the newest removal of a name."""
        return self._with_trash(name, self.trash[name][:-1])

    def _with_trash(self, name: str, kept: tuple[Removed, ...]) -> Model:
        trash = {**self.trash, name: kept}
        return replace(self, trash={key: removed for key, removed in trash.items() if removed})

    @property
    def of_bytes(self) -> list[str]:
        """The segments of bytes, whose verbs are not those of ledgers."""
        return sorted(name for name, content in self.live.items() if not content.is_ledger)

    @property
    def open_ledgers(self) -> list[str]:
        """The ledgers that take entries."""
        return [name for name, content in sorted(self.live.items()) if content.is_ledger and not content.sealed]
