"""Restore drills: the disk is lost, the cold tier was copied by plain tools, and the copy is enough to go on.

Before and afterwards the store has every kind of object: that of one segment, of several, of parts, of ledgers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from tests.reality.kills import COMMANDS
from tests.reality.lives import Life, Place, Places

Copy = Callable[[Place, Place], None]
"""Copies one place to another."""
DONE_BEFORE = ("offload-ledgers", "concat", "clone", "batch-write", "rm")
DONE_AFTER = ("append", "offload-ledgers", "truncate", "gc")


def drill(path: Path, places: Places, copy: Copy, seed: str, *, large: bool) -> None:
    """Lose a store's disk, recover the store from a copy of its cold tier, and go on with it.

    `large`: with objects that are sent in parts.
    """
    chosen = random.Random(f"{seed} drill")
    life = Life(path, places, chosen, large=large)
    _do(life, DONE_BEFORE)
    assert life.run("offload").code == 0
    before, place = life.contents(), life.elsewhere()
    copy(life.place, place)
    life.drop()
    life.place = place
    done = life.run("recover", *place.options)
    assert done.code == 0, done
    life.prepare()
    assert life.contents() == before
    assert life.run("check", "--read").code == 0
    _do(life, DONE_AFTER)
    life.end()


def _do(life: Life, commands: tuple[str, ...]) -> None:
    for command in commands:
        step = COMMANDS[command](life)
        done = step.run(life)
        assert done.code == 0, done
        assert step.after is None or life.contents() == step.after
