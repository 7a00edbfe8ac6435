"""Figures in the pictures of docs/benchmarks.md can be read: no dot covers one, and no text leaves its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.reading import figures, plots

RESULTS = figures.load(Path(__file__).parents[3] / "docs" / figures.DIRECTORY / figures.RESULTS_NAME)
PICTURES = dict(plots.drawn(RESULTS.answers))


@pytest.mark.parametrize("number", PICTURES)
def test_no_text_is_covered(number: int) -> None:
    pytest.importorskip("matplotlib", reason="it is of the extra [bench]")
    figure = plots.figure_of(PICTURES[number])
    figure.draw_without_rendering()
    for axis in figure.axes:
        dots = [axis.transData.transform(point) for line in axis.lines for point in line.get_xydata()]
        labels = [label.get_window_extent() for label in axis.texts]
        assert len(labels) == len(axis.patches) > 0
        for label in labels:
            assert not any(label.contains(x, y) for x, y in dots), label
            assert label.x1 < axis.get_window_extent().x1


@pytest.mark.parametrize("number", PICTURES)
def test_no_panel_reaches_into_another(number: int) -> None:
    pytest.importorskip("matplotlib", reason="it is of the extra [bench]")
    figure = plots.figure_of(PICTURES[number])
    figure.draw_without_rendering()
    panels = [axis.get_tightbbox() for axis in figure.axes]
    for place, panel in enumerate(panels):
        assert figure.bbox.x0 < panel.x0
        assert panel.x1 < figure.bbox.x1
        assert not any(panel.overlaps(other) for other in panels[place + 1 :])
