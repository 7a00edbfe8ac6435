"""The holder at work by itself: it looks, plans, uploads, packs, consolidates, evicts, publishes and collects."""

from __future__ import annotations

import random
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from unittest.mock import patch

import trio
from trio._core import _run
from trio.testing import MockClock

from tests.simulation.steps import Arguments, verb
from tests.simulation.verbs.lifetimes import follow
from tests.simulation.world import World
from tests.upkeep.holder.holding import working
from tierfs.base.options.config import BackgroundSettings
from tierfs.base.words.errors import leaf


@verb(2, lambda world, chance: {"seconds": chance.choice([2, 3, 7])}, calls_storage=True, afterwards=follow)
def hold(world: World, arguments: Arguments) -> None:
    """Its periods are those of trio's clock, which jumps; its policies go by the world's, which is moved along."""
    in_order = patch.object(_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)  # as for hypothesis
    with in_order, patch.object(_run, "_r", random.Random(arguments["seconds"])):
        apart(partial(_hold, world, arguments["seconds"]))


async def _hold(world: World, seconds: int) -> None:
    settings = BackgroundSettings(lifetimes_every_s=5, owner_check_s=5, retry_first_s=1)
    async with working(world.store, settings):
        for _ in range(seconds):
            await trio.sleep(1)
            world.clock.advance(1)


def apart(work: Callable[[], Awaitable[None]]) -> None:
    """Run a loop with a clock of its own while the loop of the readers stands still. Raises its error, Death too."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            trio.run(work, clock=MockClock(autojump_threshold=0))
        except BaseException as exc:
            failed.append(leaf(exc))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
