"""One picture per question: a bar for each subject and every repetition as a dot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.reading.figures import DIGITS, DIRECTORY, MORE_IS_BETTER, Answer, Part, Results
from tests.benchmarks.reading.report import plot_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH_INCHES = 8.0
_BAR_INCHES = 0.36
_FRAME_INCHES = 1.2
"""Title and axis of one part."""
_DOTS_PER_INCH = 110
_OURS, _LIMIT, _OTHERS = "tab:blue", "tab:gray", "tab:orange"
_LABEL_ROOM = 1.18
"""Of the longest bar or farthest dot, so that the figure beside it has room."""
_LABEL_GAP_POINTS = 8
"""Between the farthest dot and the figure: no dot lies on a digit."""
_FONT_POINTS = 12
"""Of titles, names and figures: documents show the picture in less than its width."""


def draw(results: Results, docs: Path) -> None:
    """Write the plots of all answers; needs the extra [bench]."""
    directory = docs / DIRECTORY
    directory.mkdir(exist_ok=True)
    for answer in results.answers:
        if any(part.found for part in answer.parts):
            # Without the version of matplotlib, the same figures give the same file.
            path = directory / plot_name(answer)
            figure_of(answer).savefig(path, dpi=_DOTS_PER_INCH, metadata={"Software": None})


def figure_of(answer: Answer) -> Figure:
    """Return the picture of an answer that has figures."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    parts = [part for part in answer.parts if part.found]
    heights = [_FRAME_INCHES + _BAR_INCHES * len(part.found) for part in parts]
    figure = Figure(figsize=(_WIDTH_INCHES, sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(parts), 1, squeeze=False, height_ratios=heights)
    for part, (axis,) in zip(parts, axes, strict=True):
        _bars(part, part.title or answer.title, axis)
    return figure


def _bars(part: Part, title: str, axis: Axes) -> None:
    """The part's first metric."""
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
    axis.tick_params(labelsize=_FONT_POINTS)
    axis.set_title(title, fontsize=_FONT_POINTS, fontweight="bold", loc="left")
    axis.set_xlabel(f"{metric} ({'more' if metric in MORE_IS_BETTER else 'less'} is better)", fontsize=_FONT_POINTS)


def _color(part: Part, subject: str) -> str:
    if subject == part.limit:
        return _LIMIT
    return _OURS if subject.startswith("tierfs") else _OTHERS
