"""Moves of the cold tier beside all that a store does, with kills of the move, the holder and the appenders.

Appenders with ack=cold and one without, commands that pack, repack, consolidate, evict, remove and restore, a mount and
a reader in this process live through every move. After each, the place before is emptied: every acknowledged byte is
read from the new one alone, and nothing is called damaged.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from tests import forked, verbs
from tests.mount.waiting import eventually
from tests.reality.ack_appender import record
from tests.reality.acks import Drill
from tests.reality.lives import Place, Places
from tierfs.app import store as app
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.journal.reader import list_journal
from tierfs.metadata import chains, directories
from tierfs.metadata.records import LocationRecord
from tierfs.setup.connect import connect_bare
from tierfs.types import ChunkState, Tier

_SMALL_BYTES = (1, 50, 500, 1000, 3000)
"""Of segments that become cold in packs."""

_MOST_SMALL = 60
"""Living segments of the worker; beyond them it removes some."""

_MOVE_S = 120.0
"""No move here takes as long."""

_ALREADY = "the cold tier is at"
_LATER = ("faster than they are copied", "changes the cold tier's place")
"""Why a move is repeated."""

_KILLS = ("none", "none", "move", "move", "holder", "appender")
"""Beside a move."""


class MovesDrill(Drill):
    """One store that moves between places of all kinds."""

    def __init__(self, root: Path, places: Places, seed: str, others: Places | None = None, *, mounts: bool) -> None:
        """`others`: makes places of another kind, which every second move goes to."""
        super().__init__(root, places, seed)
        self.kinds = [places] if others is None else [others, places]
        self.small: dict[str, bytes] = {}
        self.removed: dict[str, bytes] = {}
        self.mounts = mounts
        self.mountpoint = root / "mnt"

    def moves(self, count: int) -> Counter[str]:
        """Move so many times; return what was done."""
        with ExitStack() as stack:
            stack.callback(self._end)
            if self.mounts:
                self.mountpoint.mkdir()
                stack.callback(self._unmount)
            with app.open_store(self.life.path) as reader:
                for number in range(count):
                    print(f"{number} of {count} moves: {dict(self.seen)}", flush=True)
                    self._start()
                    if self.mounts and not self.mountpoint.is_mount():
                        self._mount()
                    self._work()
                    self._listen(self.chosen.randrange(1, 20))
                    self._move(self.kinds[number % len(self.kinds)]())
                    self._read_by(reader)
        self.seen["records"] = sum(progress.number for progress in self.acknowledged.values())
        self.life.end()
        return self.seen

    def _move(self, to: Place) -> None:
        """Move, killed or beside kills, until it is done; then only the new place is left."""
        before = self.life.place
        kill = self.chosen.choice(_KILLS)
        words = ("--to", to.url, *self._server(to))
        while True:
            mover = forked.Talking("tierfs", "--store", self.life.path, "move", *words)
            self._beside(kill, mover)
            code, (_, errors) = mover.wait(_MOVE_S), mover.end()
            assert "Traceback" not in errors, errors
            if code == 0 or _ALREADY in errors:  # a move that was killed had got so far
                break
            assert kill == "move" or any(text in errors for text in _LATER), (code, errors)
            self.seen["moves repeated"] += 1
            kill = "none"
        self.life.place = to
        self.seen["moves"] += 1
        self.seen[f"beside {kill}"] += 1
        self._everywhere()
        self._require_note(before)
        self._empty(before)
        self._compare()
        self._compare_small()

    def _server(self, place: Place) -> tuple[str, ...]:
        options = [str(option) for option in place.options]
        return tuple(options[options.index("--endpoint-url") :]) if "--endpoint-url" in options else ()

    def _beside(self, kill: str, mover: forked.Talking) -> None:
        self._listen(self.chosen.randrange(0, 12))
        if kill == "move":
            mover.kill()
        elif kill == "holder" and self.holder is not None:
            self.holder.end()
            self.holder = None
            self.seen["holders killed"] += 1
        elif kill == "appender":
            self._kill(self.chosen.choice(list(self.appenders)))
            self.seen["appenders killed"] += 1
        else:
            self._work()

    def _everywhere(self) -> None:
        """Wait until every process that lived through the move has had an answer in the new place."""
        for appender in list(self.appenders.values()):
            for _ in range(40):  # what waits in its pipe is older
                self._hear(appender.line())
        if self.mounts:
            assert eventually(self._mounted, 30), "the mount does not go on"

    def _require_note(self, before: Place) -> None:
        with closing(self._connected(before)) as storage:
            said = eventually(lambda: list_journal(storage).is_left, 30)
            if not said:  # the next holder puts it, if the one that moved was killed
                assert self.life.run("gc").code == 0
                assert list_journal(storage).is_left, "the place that was left does not say so"

    def _connected(self, place: Place) -> ChunkStorage:
        with app.open_store(self.life.path) as store:
            now = store.cold_location
            assert now is not None
            url = place.url if "://" in place.url else f"file:{place.url}"
            server = self._server(place)[1:]
            location = LocationRecord(id=now.id, url=url, endpoint_url=server[0] if server else "")
            return connect_bare(location, store.path, store.settings.cold)

    def _empty(self, place: Place) -> None:
        """Nothing may need it any more."""
        if place.options[0] == "--cold-dir":
            shutil.rmtree(place.url)
            return
        with closing(self._connected(place)) as storage:
            for stored in list(storage.list("")):
                storage.delete(stored.name)

    # Work with objects of every kind

    def _work(self) -> None:
        """Append small segments, and do something with what is cold."""
        for _ in range(self.chosen.randrange(1, 8)):
            name, data = f"w/{next(self.life.numbers)}", self.chosen.randbytes(self.chosen.choice(_SMALL_BYTES))
            self.life.append(name, data, seal=True)
            self.small[name] = data
        works: list[Callable[[], object]] = [
            lambda: self._run("offload", "w"),
            lambda: self._run("evict", "w"),
            lambda: self._run("consolidate", "/"),
            lambda: self._run("gc", "--delete"),
            self._restore,
        ]
        self.chosen.choice(works)()
        if len(self.small) > _MOST_SMALL:
            self._remove()

    def _run(self, *words: str) -> None:
        done = self.life.run(*words)
        # Beside a move a command may meet the moment at which the place changes, and says so.
        beside = ("another address", "was given up", "Conflict", "process", "holder")
        assert done.code == 0 or any(text in done.err for text in beside), done
        self.seen[words[0]] += 1

    def _remove(self) -> None:
        for name in self.chosen.sample(sorted(self.small), len(self.small) * 4 // 5):
            now = self.chosen.random() < 0.7
            done = self.life.run("rm", "--yes", *(["--now"] if now else []), name)
            assert done.code == 0, done
            data = self.small.pop(name)
            if not now:
                self.removed[name] = data
            self.seen["rm"] += 1

    def _restore(self) -> None:
        for name in self.chosen.sample(sorted(self.removed), min(3, len(self.removed))):
            done = self.life.run("restore", name)
            assert done.code == 0, done
            self.small[name] = self.removed.pop(name)
            self.seen["restore"] += 1

    # Readers

    def _compare_small(self) -> None:
        """Evict all that is cold, and read everything from what is left; nothing was called damaged."""
        self._run("evict")
        with app.open_store(self.life.path) as store:
            for name, data in self.small.items():
                assert self._bytes(store, name) == data, name
            self._require_unaccused(store)

    def _bytes(self, store: app.Store, name: str) -> bytes:
        data = bytearray()
        verbs.cat(store, name, None, None, None, data.extend)
        return bytes(data)

    def _require_unaccused(self, store: app.Store) -> None:
        with store.metadata.read() as txn:
            root = directories.find(txn, "")
            assert root is not None
            for name, segment in directories.segments_below(txn, root, ""):
                for tier in Tier:
                    bad = [each for each in chains.chunks(txn, segment.id, tier) if each.state is not ChunkState.GOOD]
                    assert not bad, f"{name} is accused: {bad}"
            assert not txn.store.journal.fenced_by_epoch

    def _read_by(self, store: app.Store) -> None:
        """Read by a handle that is older than all moves."""
        for name in self.chosen.sample(sorted(self.small), min(5, len(self.small))):
            assert self._bytes(store, name) == self.small[name], name
        self.seen["reads by an old handle"] += 1

    def _mount(self) -> None:
        done = self.life.run("mount", self.mountpoint, "-o", "direct_io")
        assert done.code == 0, done

    def _unmount(self) -> None:
        subprocess.run(["fusermount3", "-uz", self.mountpoint], check=False, capture_output=True)

    def _mounted(self) -> bool:
        """Read some acknowledged records by the mount. Raises for other bytes, and for an error."""
        for name, progress in self.acknowledged.items():
            if not progress.number:
                continue
            at = 0
            with open(self.mountpoint / name, "rb") as file:
                for number in range(progress.number):
                    expected = record(self.seed, name, number)
                    if self.chosen.random() < 0.2:
                        file.seek(at)
                        assert file.read(len(expected)) == expected, f"{name}: record {number} by the mount"
                    at += len(expected)
        self.seen["reads by a mount"] += 1
        return True
