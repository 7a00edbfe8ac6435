"""Positions and times by segment or directory, in JSON: `startingOffsets` and its kin, as Spark's source of Kafka has
them by partition. Pure.

    {"logs/web": 1234, "logs/app": -1, "logs/old": -2}      offsets; -2 is the earliest, -1 the latest
    {"logs/web": 1767225600000, "logs": "2031-01-30"}       times

A name of a directory means all segments below it, and a longer name goes before a shorter one. Offsets are of bytes;
where rows are entries or messages, they are ids of entries.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.names import printable

EARLIEST, LATEST = -2, -1

_ROOT = ""


@dataclass(frozen=True, slots=True)
class NamedNumbers:
    """Numbers by the names of segments and directories."""

    option: str
    numbers: Mapping[str, int]

    @classmethod
    def everywhere(cls, option: str, number: int) -> NamedNumbers:
        """Return the same number for all segments."""
        return cls(option, {_ROOT: number})

    @classmethod
    def parse(cls, option: str, given: Mapping[str, object], number_of: Callable[[object], int]) -> NamedNumbers:
        """Return the numbers of a JSON object; `number_of` raises ValueError that names the valid forms.

        Raises InvalidRequest for a value of another form, for what is no name, and for a name that is there twice.
        """
        numbers: dict[str, int] = {}
        for name, value in given.items():
            try:
                path = names.join(names.split(name))
            except InvalidRequest as exc:
                raise InvalidRequest(
                    f"invalid name in option {option}: {exc}",
                    remedy="use names as in the column segment, or directories above them",
                ) from exc
            if path in numbers:
                raise InvalidRequest(f"{option} has {printable(path) or '/'} twice", remedy="set one of them")
            try:
                numbers[path] = number_of(value)
            except ValueError as exc:
                raise InvalidRequest(
                    f"invalid value {printable(json.dumps(value))} for {printable(name) or '/'} in option {option}",
                    remedy=f"expected {exc}",
                ) from exc
        return cls(option, numbers)

    def of(self, path: str) -> int | None:
        """Return the number of a segment: its own, else that of the nearest directory above it."""
        name = self._nearest(path)
        return None if name is None else self.numbers[name]

    def position(self, path: str, start: int, end: int, *, tolerant: bool) -> int | None:
        """Return the position of a segment that has positions [start, end]; None if no name means it.

        Raises DataLoss for one before `start`, and InvalidRequest for one after `end`; `tolerant`: the nearest one that
        exists is returned. Raises InvalidRequest for a position of a directory.
        """
        name = self._nearest(path)
        number = None if name is None else self.numbers[name]
        if name is None or number is None or number == EARLIEST:
            return None if number is None else start
        if number == LATEST:
            return end
        if name != path:
            raise InvalidRequest(
                f"{self.option} has {number} for {printable(name) or '/'}, which is a directory",
                remedy=f"name a segment, or use {LATEST} (latest) or {EARLIEST} (earliest)",
            )
        if number < start and not tolerant:
            raise DataLoss(
                f"{self.option} has {number} for segment {printable(path)}, which now starts at {start}",
                remedy="set failOnDataLoss to false to start at the bytes that are left",
            )
        if number > end and not tolerant:
            raise InvalidRequest(
                f"{self.option} has {number} for segment {printable(path)}, which ends at {end}",
                remedy=f"use {LATEST} for its end, or set failOnDataLoss to false",
            )
        return min(end, max(start, number))

    def require_used(self, paths: Iterable[str]) -> None:
        """Raise InvalidRequest for a name that means none of the segments at `paths`: it would be ignored."""
        left = set(self.numbers) - {_ROOT}
        for path in paths:
            if not left:
                return
            left -= {path, *_above(path)}
        if left:
            raise InvalidRequest(
                f"{self.option} has {printable(min(left))}, but nothing of that name is read",
                remedy="use names as in the column segment, or directories above them",
            )

    def _nearest(self, path: str) -> str | None:
        return next((name for name in (path, *_above(path)) if name in self.numbers), None)


@dataclass(frozen=True, slots=True)
class NamedBounds:
    """The bounds of segments by their names; None: not given. Half-open."""

    start: NamedNumbers | None = None
    end: NamedNumbers | None = None
    start_ms: NamedNumbers | None = None
    end_ms: NamedNumbers | None = None
    saved: Mapping[str, object] | None = None
    """An offset of a stream's progress, at which another stream starts in place of `start`."""
    is_between: bool = False
    """Whether a batch starts or ends at such an offset."""
    tolerant: bool = False
    """Whether a position that does not exist means the nearest one that does."""
    requires_time: bool = False
    """Whether a segment that ends before a time of `start_ms` is an error."""

    @property
    def given(self) -> tuple[NamedNumbers, ...]:
        """The bounds that are given."""
        return tuple(named for named in (self.start, self.end, self.start_ms, self.end_ms) if named is not None)

    @property
    def cuts_times(self) -> bool:
        """Whether a segment may be read from a time on, or up to one."""
        return self.start_ms is not None or self.end_ms is not None

    def cuts(self, path: str) -> bool:
        """Return whether a segment may be read in part."""
        offsets = ((self.start, EARLIEST), (self.end, LATEST))
        if any(named is not None and named.of(path) not in (None, whole) for named, whole in offsets):
            return True
        return any(named is not None and named.of(path) is not None for named in (self.start_ms, self.end_ms))

    def require_time(self, path: str, time_ms: int | None) -> None:
        """Raise InvalidRequest if no byte of a segment has the time at which its read starts."""
        if self.requires_time and time_ms is None and self.start_ms is not None:
            raise InvalidRequest(
                f"segment {printable(path)} has no bytes of the time in {self.start_ms.option} or later",
                remedy="set startingOffsetsByTimestampStrategy to latest to start at its end",
            )


def offset_number(value: object) -> int:
    """Return an offset, LATEST or EARLIEST. Raises ValueError that names the valid forms."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= EARLIEST:
        return value
    raise ValueError(f"an offset, {LATEST} (latest) or {EARLIEST} (earliest)")


def json_object(text: str) -> Mapping[str, object] | None:
    """Return the object that a text is in JSON, or None if it is anything else.

    Raises InvalidRequest for a name that is there twice.
    """
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def saved_offset(text: str | None) -> Mapping[str, object] | None:
    """Return an offset as the progress of a stream, and its checkpoint, have it; None for any other text."""
    value = None if text is None else json_object(text)
    return value if value is not None and isinstance(value.get("open"), dict) else None


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = next(name for name, _ in pairs if sum(name == other for other, _ in pairs) > 1)
        raise InvalidRequest(f"{printable(twice)} is twice in one option", remedy="set one of them")
    return values


def _above(path: str) -> Iterable[str]:
    """Yield the directories above a name, the nearest first; the last one is the root."""
    while path:
        path = path.rpartition("/")[0]
        yield path
