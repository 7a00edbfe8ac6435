"""Defects that the code once had are put back, one at a time, and lives are lived until one fails."""

from __future__ import annotations

import time

from tests.mutants.ledger import SafetyLine, read_ledger
from tests.mutants.swap import mutate
from tests.simulation import knobs
from tests.simulation.lives import Life
from tests.simulation.tally import Tally, live

PUT_BACK = {
    "an object that was begun before a move and linked beside it stays in the place before": 1000,
    "what reads for long stays in the place that the store has left": 2000,
    "a process that begins with a clock that was set trusts it": 3000,
    "what became cold beside a damaged chunk is lost with the disk": 4000,
    "a process goes on with a store that was removed while another one is at its path": 5000,
}
"""What each loses, as tests/mutants/lines says, and the first seed."""

MOST_STEPS = 30_000
"""Within which a life must fail: some five minutes of a core."""


def line_that(loses: str) -> SafetyLine:
    """Return the line of the ledger without which the code loses this."""
    (line,) = (line for line in read_ledger() if line.loses == loses)
    return line


def tried(loses: str, seed: int) -> str | None:
    """Live without a line in this process, which is of no use afterwards; return what was found, None for nothing."""
    knobs.import_rooms()
    if not mutate(line_that(loses)):
        raise AssertionError(f"the line that {loses!r} names is in no function that could be swapped")
    tally, begun_s = Tally(), time.process_time()
    while tally.steps < MOST_STEPS:
        failed = live(Life(seed), tally)
        if failed is not None:
            said = str(failed.error).splitlines()[0][:100]
            return f"seed {seed}, {tally.steps} steps, {time.process_time() - begun_s:.0f} s: {said}"
        seed += 1
    return None
