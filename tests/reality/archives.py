"""A thousand objects go to a storage class or a second place and back, and what moves them is killed again and again.

A kill comes before a changing system call that the seed draws (tests/reality/stopped). Afterwards all bytes are those
of before, records, places and classes agree, and `gc` leaves no garbage and no orphan. A second place that is a
directory is away now and then: nothing moves, and its bare mount point stays empty.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from pathlib import Path

from tests import verbs
from tests.reality.kills import CLASS
from tests.reality.lives import Life, Place, Places
from tests.reality.stopped import KILLED
from tierfs.app import store as app
from tierfs.app.verbs import garbage
from tierfs.base.words.types import IN_PLACE, Tier
from tierfs.engine.metadata.tables import OBJECTS

SMALL_BYTES, LARGE_BYTES = 8_000, 9 << 20
LARGE = 3
"""Objects that are sent in parts, which no answer of Ceph proves."""
AWAY = 0.2
"""Share of the kills after which the disk of a second place is away."""
WRONG_PLACE = 12
"""Exit code of a place that is not the store's."""
CALLS_PER_OBJECT = 12
"""Changing system calls that the move of an object takes at least, several at once: a guess that sets the pace."""


class ArchiveDrill:
    """One store, and the number of kills so far."""

    def __init__(self, path: Path, places: Places, seed: str, objects: int, archive: Place | None = None) -> None:
        """`archive`: a second place, in place of a storage class."""
        self._archive = archive
        self._class = CLASS if archive is None else IN_PLACE
        self._chosen = random.Random(f"{seed} archives")
        self._life = Life(path, places, self._chosen, large=True, packs=(0,))
        self._objects = objects
        self.seen: Counter[str] = Counter()
        if archive is not None:
            endpoint = [f"archive.endpoint_url={archive.options[3]}"] if len(archive.options) > 2 else []
            done = self._life.run("config", f"archive.place={archive.url}", *endpoint)
            assert done.code == 0, done
        with app.open_store(self._life.path) as store:
            for number in range(objects):
                length = LARGE_BYTES if number < LARGE else self._chosen.randrange(1, SMALL_BYTES)
                writer = store.engine.open_writer(f"d{number % 10}/s{number}")
                writer.append(self._chosen.randbytes(length), last=True, seal=True)
                store.engine.close_writer(writer)
            verbs.offload(store)
            verbs.evict(store, force=True)
        self._before = self._life.contents()

    def run(self, kills: int) -> Counter[str]:
        """Kill so often, end what was begun, bring everything back, and check all; return what was done."""
        most_calls = 2 * CALLS_PER_OBJECT * self._objects // max(1, kills // 2)
        for to in itertools.cycle((("--class", self._class), ("--back",))):
            while self.seen["kills"] < kills and self._is_killed(to, most_calls):
                self._require_records()
                if self._archive is not None and self._chosen.random() < AWAY:
                    self._is_away(to)
            self._done(to)
            if self.seen["kills"] >= kills and to == ("--back",):
                break
        assert self._life.contents() == self._before
        self._life.end()
        assert self._classes() == Counter({"": self._records()})
        if self._archive is not None:
            done = self._life.run("config", "archive.place=", "--json")
            assert (done.code, done.err) == (0, ""), done  # also the mark is gone, as no object is there
        return self.seen

    def _is_away(self, to: tuple[str, ...]) -> None:
        """Take the disk of a second place away, and leave its mount point."""
        assert self._archive is not None
        if self._archive.options[0] != "--cold-dir":
            return
        place = Path(self._archive.url)
        away = place.rename(place.with_name(f"{place.name}.away"))
        place.mkdir()
        before = self._classes()
        done = self._life.run("archive", *to)
        assert done.code in (0, WRONG_PLACE), done
        assert done.code == WRONG_PLACE or set(before) == {"" if to == ("--back",) else self._class}, done
        assert not any(place.iterdir())
        assert self._classes() == before
        place.rmdir()
        away.rename(place)
        self.seen["away"] += 1

    def _is_killed(self, to: tuple[str, ...], most_calls: int) -> bool:
        done = self._life.run("archive", *to, stop=self._chosen.randrange(1, most_calls))
        assert done.code in (0, KILLED), done
        self.seen["kills"] += done.code == KILLED
        return done.code == KILLED

    def _done(self, to: tuple[str, ...]) -> None:
        """Let a command end what the killed ones began, and read everything: what they left has a record of garbage."""
        done = self._life.run("archive", *to)
        assert done.code == 0, done
        self.seen["ways"] += 1
        wanted = to[1] if len(to) > 1 else ""
        assert set(self._classes()) == {wanted}
        with app.open_store(self._life.path) as store:
            assert not garbage(store, grace_s=0).orphans
        assert self._life.contents() == self._before

    def _require_records(self) -> None:
        """After each kill no object was forgotten, and those that moved have their class."""
        classes = self._classes()
        assert set(classes) <= {"", self._class}, classes
        assert classes.total() >= self._objects
        self.seen["seen in both classes"] += len(classes) > 1

    def _classes(self) -> Counter[str]:
        with app.open_store(self._life.path) as store, store.metadata.read() as txn:
            return Counter(row.archive_class for _, row in txn.scan(OBJECTS) if row.tier is Tier.COLD)

    def _records(self) -> int:
        return self._classes().total()
