"""Draw the problems of a store: the first lines of `tierfs status`, and the one line of `status --check`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tierfs.base.words.names import printable
from tierfs.faces.cli import output
from tierfs.upkeep.holder.problem import Gravity, Problem, worst

if TYPE_CHECKING:
    from tierfs.upkeep.holder.status import StoreStatus

# Takes a text and a colour, and returns the text for a terminal.
Paint = Callable[[str, str], str]

_OK = "ok"
_COLOURS = {Gravity.NOTE: "cyan", Gravity.WARNING: "yellow", Gravity.CRITICAL: "red"}

# Nagios separates what is shown from its figures with this sign.
_FIGURES = "|"
_STATES = {Gravity.NOTE: "OK", Gravity.WARNING: "WARNING", Gravity.CRITICAL: "CRITICAL"}


def head(problems: Sequence[Problem], paint: Paint) -> list[str]:
    """Return `ok`, or the problems in their order, each with its remedy below; notes follow either."""
    lines = [] if worst(problems) else [paint(_OK, "green")]
    for problem in problems:
        label = paint(f"{problem.gravity.label}:", _COLOURS[problem.gravity])
        lines += [f"{label} {printable(problem.text)}", f"  {printable(problem.remedy)}"]
    return lines


def check_line(report: StoreStatus, problems: Sequence[Problem]) -> str:
    """Return one line for Nagios: the state, the worst problem and the number of others, and the figures."""
    state, shown = _STATES[worst(problems)], [problem for problem in problems if problem.gravity]
    if shown:
        more = f"; and {output.count(len(shown) - 1, 'other problem')}" if len(shown) > 1 else ""
        text = f"{printable(shown[0].text)}: {printable(shown[0].remedy)}{more}"
    else:
        text = f"{output.count(report.segments, 'segment')}, {output.size(report.bytes)}"
    figures = {
        "local": f"{report.local.bytes}B",
        "cold": f"{report.cold.bytes}B",
        "free": f"{report.local_free_bytes}B",
        "not_offloaded": f"{report.not_offloaded_bytes}B",
        "lost": f"{report.endangered.lost_bytes}B",
        "suspect": f"{report.endangered.suspect_bytes}B",
        "unpublished": str(report.journal.unpublished),
        "stuck": str(len(report.troubles)),
    }
    shown_figures = " ".join(f"{name}={value}" for name, value in figures.items())
    return f"TIERFS {state} - {text.replace(_FIGURES, '/')} {_FIGURES} {shown_figures}"


def failed_line(why: str) -> str:
    """Return the line of a store that could not be examined."""
    return f"TIERFS {_STATES[Gravity.CRITICAL]} - {printable(why).replace(_FIGURES, '/')}"
