"""Repeated measurements, their medians, and how near each is to its limit."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tierfs.chunkstore.link_limit import LinkMeasurement

_BYTES_PER_MB = 1_000_000
_MS_PER_S = 1000


class FigureUnit(StrEnum):
    """The unit of a value."""

    MB_PER_S = "MB/s"
    MS = "ms"


@dataclass(frozen=True, slots=True)
class Figure:
    """One subject's values, in the order of measuring."""

    what: str
    unit: FigureUnit
    values: tuple[float, ...]
    limit: str | None = None
    """The subject that nothing can beat here; None if the subject is a limit itself."""
    ratio: float | None = None
    """1 if the limit is reached, 0.5 if it takes twice as long."""

    @property
    def median(self) -> float:
        """The median of the values."""
        return statistics.median(self.values)


@dataclass(frozen=True, slots=True)
class Results:
    """The figures of one run."""

    path: str
    """The file that was read, or the store beside which files were made."""
    size_bytes: int
    """Of each sequential read."""
    figures: tuple[Figure, ...]
    link: LinkMeasurement | None = None
    """To the cold tier; None where nothing cold was read."""


class Series:
    """Collects values of several subjects of one unit each."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[FigureUnit, list[float]]] = {}

    def __contains__(self, what: str) -> bool:
        return what in self._values

    def add_rate(self, what: str, length_bytes: int, taken_s: float) -> None:
        """One more measurement of bytes and the seconds they took."""
        self._add(what, FigureUnit.MB_PER_S, length_bytes / taken_s / _BYTES_PER_MB)

    def add_delay(self, what: str, delay_s: float) -> None:
        """One more measurement of a delay."""
        self._add(what, FigureUnit.MS, delay_s * _MS_PER_S)

    def figure(self, what: str, limits: Sequence[str] = ()) -> Figure:
        """The subject's figure; of several limits the lowest rate counts, or the longest delay."""
        unit, values = self._values[what]
        if not limits:
            return Figure(what, unit, tuple(values))
        if unit is FigureUnit.MB_PER_S:
            limit = min(limits, key=self._median)
            return Figure(what, unit, tuple(values), limit, self._median(what) / self._median(limit))
        limit = max(limits, key=self._median)
        return Figure(what, unit, tuple(values), limit, self._median(limit) / self._median(what))

    def _median(self, what: str) -> float:
        return statistics.median(self._values[what][1])

    def _add(self, what: str, unit: FigureUnit, value: float) -> None:
        self._values.setdefault(what, (unit, []))[1].append(value)
