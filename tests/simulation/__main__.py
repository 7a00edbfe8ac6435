"""Live many lives: `python -m tests.simulation --seed 1 --steps 1000000`."""

from __future__ import annotations

import argparse
import logging
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.mutants.forks import in_forks
from tests.simulation import corpus
from tests.simulation.lives import Life, Lived
from tests.simulation.put_back import PUT_BACK, tried
from tests.simulation.tally import Tally, live, report, shortened

_LONGEST_S = 7200.0
"""Of one defect, however busy the machine is."""


def main() -> int:
    """Live seeds from one on, or a corpus, and print the first failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, default=0, help="of the first life")
    parser.add_argument("--steps", type=int, default=1, help="end after so many")
    parser.add_argument("--corpus", type=Path, help="live those of a file instead")
    parser.add_argument("--keep-on", action="store_true", help="go on after a failure")
    parser.add_argument("--shrink", action="store_true", help="make failed lives shorter")
    parser.add_argument("--put-back", action="store_true", help="see that lives find each of some defects")
    options = parser.parse_args()
    logging.getLogger("tierfs").addHandler(logging.NullHandler())
    logging.getLogger("tierfs").propagate = False
    if options.put_back:
        return put_back()
    tally, begun, failed = Tally(), time.process_time(), 0
    if options.corpus is not None:
        for kept in corpus.read(options.corpus):
            lived = tally.add(corpus.life(kept).again(kept.steps))
            if lived.error is not None:
                failed += 1
                tell(corpus.life(kept), lived, shorten=options.shrink)
    else:
        seed = options.seed
        with suppress(KeyboardInterrupt):  # what was lived until then counts
            while tally.steps < options.steps and not (failed and not options.keep_on):
                life = Life(seed)
                failure = live(life, tally)
                if failure is not None:
                    failed += 1
                    tell(life, failure, shorten=options.shrink)
                seed += 1
        print(f"seeds {options.seed} to {seed}")
    spent_s = time.process_time() - begun
    print(f"{tally}; {failed} failed; {tally.steps / max(spent_s, 0.001):.0f} steps per CPU second")
    for name in ("verbs", "faults", "points"):
        print(f"{name}: {dict(getattr(tally, name))}")
    return 1 if failed else 0


def put_back() -> int:
    """Put defects back, each in a child; return 1 if no life fails for one of them."""
    works = ((loses, partial(tried, loses, seed)) for loses, seed in PUT_BACK.items())
    missed = 0
    for loses, result in in_forks(works, at_once=1, limit_s=_LONGEST_S):
        missed += not isinstance(result, str)
        print(f"{loses}: {result or 'NOT FOUND'}", flush=True)
    return 1 if missed else 0


def tell(life: Life, lived: Lived, *, shorten: bool) -> None:
    """Print a failure."""
    print(report(life, lived), flush=True)
    if shorten:
        print(shortened(life, lived), flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
