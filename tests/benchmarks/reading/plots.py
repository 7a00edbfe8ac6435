"""A picture for each question that other mounts answer: a panel for each link and part, a bar for each subject.

Every repetition is a dot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.reading.figures import DIGITS, DIRECTORY, MORE_IS_BETTER, Answer, Part, Results
from tests.benchmarks.reading.report import plot_name
from tests.benchmarks.reading.sheets import SHEETS, rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 2
_WIDTH_INCHES = 11.0
_BAR_INCHES = 0.36
_FRAME_INCHES = 1.0
"""Title and axis of one panel."""
_MARGIN_INCHES = 0.1
_DOTS_PER_INCH = 110
_OURS, _LIMIT, _OTHERS = "tab:blue", "tab:gray", "tab:orange"
_OF_TIERFS_ALONE = 2
"""Subjects of a part that compares tierfs with its limit alone: a table says it."""
_LABEL_ROOM = 1.25
"""Of the longest bar or farthest dot, so that the figure next to it has room."""
_LABEL_GAP_POINTS = 8
"""Between the farthest dot and the figure: no dot covers a digit."""
_FONT_POINTS = 12
"""Of titles, names and figures: documents show the picture in less than its width."""


def draw(results: Results, docs: Path) -> None:
    """Write the pictures of all answers; needs the extra [bench]."""
    directory = docs / DIRECTORY
    directory.mkdir(exist_ok=True)
    for number, panels in drawn(results.answers):
        # Without the version of matplotlib, the same figures give the same file.
        figure_of(panels).savefig(directory / plot_name(number), dpi=_DOTS_PER_INCH, metadata={"Software": None})


def drawn(answers: Sequence[Answer]) -> Iterable[tuple[int, list[tuple[str, Part]]]]:
    """Yield each question that has a picture, with the titles and parts of its panels."""
    for sheet in SHEETS:
        for number in sheet.drawn:
            of_number = [answer for answer in answers if answer.number == number]
            panels = [(title, part) for title, _, part in rows(sheet, of_number) if len(part.found) > _OF_TIERFS_ALONE]
            if panels:
                yield number, panels


def figure_of(panels: Sequence[tuple[str, Part]]) -> Figure:
    """Return the picture of parts that have figures."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    lines = [panels[start : start + _COLUMNS] for start in range(0, len(panels), _COLUMNS)]
    heights = [_FRAME_INCHES + _BAR_INCHES * max(len(part.found) for _, part in line) for line in lines]
    layout = ConstrainedLayoutEngine(w_pad=_MARGIN_INCHES, h_pad=_MARGIN_INCHES)
    figure = Figure(figsize=(_WIDTH_INCHES, sum(heights)), layout=layout)
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(lines), _COLUMNS, squeeze=False, height_ratios=heights)
    for line, row in zip(lines, axes, strict=True):
        for (title, part), axis in zip(line, row, strict=False):
            _bars(part, title, axis)
        for axis in row[len(line) :]:
            axis.remove()
    return figure


def _bars(part: Part, title: str, axis: Axes) -> None:
    """Draw the part's first metric."""
    metric = part.metrics[0]
    medians = {subject: value for subject in part.found if (value := part.median(subject, metric)) is not None}
    most = max(max(part.found[subject][metric]) for subject in medians)
    axis.barh(list(medians), list(medians.values()), color=[_color(part, subject) for subject in medians])
    for row, (subject, median) in enumerate(medians.items()):
        values = part.found[subject][metric]
        axis.plot(values, [row] * len(values), "o", color="black", markeredgecolor="white", markersize=5)
        axis.annotate(
            f"{median:.{DIGITS[metric]}f}",
            (max(values), row),
            xytext=(_LABEL_GAP_POINTS, 0),
            textcoords="offset points",
            verticalalignment="center",
            fontsize=_FONT_POINTS,
        )
    axis.invert_yaxis()
    axis.set_xlim(0, most * _LABEL_ROOM)
    axis.locator_params(axis="x", nbins=5)
    axis.tick_params(labelsize=_FONT_POINTS)
    axis.set_title(title, fontsize=_FONT_POINTS, fontweight="bold", loc="left")
    axis.set_xlabel(f"{metric} ({'more' if metric in MORE_IS_BETTER else 'less'} is better)", fontsize=_FONT_POINTS)


def _color(part: Part, subject: str) -> str:
    if subject == part.limit:
        return _LIMIT
    return _OURS if subject.startswith("tierfs") else _OTHERS
