"""Draw a segment's bytes as bars, one per tier, over one scale. Pure: text from numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

from tierfs.app.segment_map import Bar, BarRun, Mark
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import ByteRange
from tierfs.faces.cli import output

# Least width of a bar, as a shorter one is useless; a narrower terminal wraps lines.
_MIN_CELLS = 10

_GAP = "  "
_RULER_START, _RULER_TICK, _RULER_END, _RULER_LINE = "├┼┤─"

# Numbers of parts of the scale; the first that leaves room for the labels is used.
_STEPS = (4, 2, 1)

# Glyphs, indexed by mark.
_GLYPHS = " █▒?x"

# Marks that are explained beside the bar.
_WORDED = (Mark.ACTIVE, Mark.SUSPECT, Mark.LOST)


@dataclass(frozen=True, slots=True)
class Row:
    """One tier: its name, the noun for its counted things, the limit of their number, and its runs."""

    label: str
    noun: str
    limit: int
    runs: Iterable[BarRun]
    """Iterated once."""


def draw(window: ByteRange, rows: Sequence[Row], columns: int) -> list[str]:
    """Return the scale and a bar for each row, in `columns` columns if possible."""
    indent = max(len(row.label) for row in rows) + len(_GAP)
    notes = max(len(_note(row, row.limit, {Mark.ACTIVE})) for row in rows)
    cells = max(_MIN_CELLS, columns - indent - len(_GAP) - notes)
    bars = []
    for row in rows:
        bar, owners = Bar(window, cells), set[int]()
        for run in row.runs:
            bar.paint(run)
            owners.add(run.owner)
        glyphs = "".join(_GLYPHS[mark] for mark in bar.cells)
        bars.append(f"{row.label:<{indent}}{glyphs}{_GAP}{_note(row, len(owners), bar.marks)}")
    return [*(" " * indent + line for line in scale(window, cells)), *bars]


def _note(row: Row, number: int, marks: Collection[Mark]) -> str:
    """Return the note after a bar: the number of its things, and a legend of its rarer marks."""
    shown = [f"{_GLYPHS[mark]} {mark.name.lower()}" for mark in _WORDED if mark in marks]
    return output.count(number, row.noun) + (f" ({', '.join(shown)})" if shown else "")


def scale(window: ByteRange, cells: int) -> list[str]:
    """Return a line of offsets and a ruler over `cells` cells: each offset begins at its tick, the last ends there."""
    end = offset(window.end)
    for steps in _STEPS:
        ticks = [cells * step // steps for step in range(steps)]
        labels = [offset(window.start + window.length_bytes * step // steps) for step in range(steps)]
        rooms = [after - tick for tick, after in pairwise([*ticks, cells - len(end)])]
        exact = window.length_bytes >= cells or (window.length_bytes > 0 and window.length_bytes % steps == 0)
        if exact and all(len(label) < room for label, room in zip(labels, rooms, strict=True)):
            break
    numbers = [label.ljust(room - 1) for label, room in zip(labels, rooms, strict=True)]
    inner = [_RULER_TICK if cell in ticks else _RULER_LINE for cell in range(1, cells - 1)]
    return [" ".join([*numbers, end]), "".join([_RULER_START, *inner, _RULER_END])]


def offset(number: int) -> str:
    """Format an offset as a size; offset 0 as a plain 0."""
    return output.size(number) if number else "0"
