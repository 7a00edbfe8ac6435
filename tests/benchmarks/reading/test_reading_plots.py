"""Figures in the pictures of docs/benchmarks.md can be read: no dot lies on one, and none leaves its frame."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.reading import figures, plots

RESULTS = figures.load(Path(__file__).parents[3] / "docs" / figures.DIRECTORY / figures.RESULTS_NAME)
DRAWN = [answer for answer in RESULTS.answers if any(part.found for part in answer.parts)]


@pytest.mark.parametrize("answer", DRAWN, ids=lambda answer: f"{answer.link} {answer.number}")
def test_no_figure_is_covered(answer: figures.Answer) -> None:
    pytest.importorskip("matplotlib", reason="it is of the extra [bench]")
    figure = plots.figure_of(answer)
    figure.draw_without_rendering()
    for axis in figure.axes:
        dots = [axis.transData.transform(point) for line in axis.lines for point in line.get_xydata()]
        labels = [label.get_window_extent() for label in axis.texts]
        assert len(labels) == len(axis.patches) > 0
        for label in labels:
            assert not any(label.contains(x, y) for x, y in dots), label
            assert label.x1 < axis.get_window_extent().x1
