"""Live many lives: `python -m tests.simulation --seed 1 --steps 1000000`."""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path

from tests.simulation import corpus
from tests.simulation.tally import Tally, live, report


def main() -> int:
    """Live seeds from one on, or a corpus, and print the first failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, default=0, help="of the first life")
    parser.add_argument("--steps", type=int, default=1, help="end after so many")
    parser.add_argument("--corpus", type=Path, help="live those of a file instead")
    parser.add_argument("--keep-on", action="store_true", help="go on after a failure")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    tally, begun, failed = Tally(), time.process_time(), 0
    if options.corpus is not None:
        for kept in corpus.read(options.corpus):
            lived = tally.add(corpus.life(kept).again(kept.steps))
            if lived.error is not None:
                failed += 1
                print(report(corpus.life(kept), lived), flush=True)
    else:
        seed = options.seed
        while tally.steps < options.steps and not (failed and not options.keep_on):
            try:
                live(seed, tally)
            except AssertionError as exc:
                failed += 1
                print(exc, flush=True)
            seed += 1
    spent_s = time.process_time() - begun
    print(f"{tally}; {failed} failed; {tally.steps / max(spent_s, 0.001):.0f} steps per CPU second")
    for name in ("verbs", "faults", "points"):
        print(f"{name}: {dict(getattr(tally, name))}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
