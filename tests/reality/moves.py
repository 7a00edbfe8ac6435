"""Moves of the cold tier beside all that a store does, with kills of the move, the mount, the holder and appenders.

Appenders with and without ack=cold, logs that retention shortens, commands that pack, repack, consolidate, evict,
remove and restore, and readers of every kind live through every move. After each, the place before is emptied: every
acknowledged byte is read from the new one alone, by each reader that was there before the first move, and nothing is
called damaged. At the end the disk is lost, and the last place alone has everything.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from tests import forked, verbs
from tests.mount.waiting import eventually
from tests.reality.acks import APPENDING, MOST_LINES, Appending, Drill, Progress
from tests.reality.lives import Life, Place, Places
from tests.reality.readers import Follower, Program, Watch, open_readers
from tierfs.app import store as app
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.types import MIB, Ack, ChunkState, Tier
from tierfs.engine.chunkstore import place as places
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal.reader import list_journal
from tierfs.engine.metadata import chains, directories
from tierfs.engine.metadata.records import LocationRecord
from tierfs.upkeep.holder import lock

_SMALL_BYTES = (1, 50, 500, 1000, 3000)
"""Of segments that become cold in packs, or one by one."""

_PACKED_BYTES = (2000, 4 * MIB)

_MOST_SMALL = 60
"""Living segments of the worker; beyond them it removes some."""

_LOG = "log"
_KEPT_BYTES = 150_000
"""Of each segment in `log`, by retention: more than its appender is ahead of those that follow it."""
_LOG_LINES = 30
"""Acknowledgments of its appender that are waited for, before those that follow it are."""

_ON_THE_WAY = 2 * 8 + 4 + 1
"""Acknowledgments that may be older than those which wait: a page in the pipe and one that was read from it, see
_LINE_BYTES of the appender, one of each of its threads, and one of ours."""

_LOCAL = (
    Appending(tuple(f"l/s{each}" for each in range(4)), Ack.LOCAL),
    Appending(tuple(f"{_LOG}/s{each}" for each in range(2)), Ack.LOCAL),
)

_FOLLOWED = ("d0/s0", "l/s0", "log/s0")

_MOVE_S = 400.0
"""No move here takes as long."""

_ALREADY = "the cold tier is already at"
_LATER = ("faster than they are copied", "changes the cold tier's place")
"""Why a move is repeated."""

_KILLS = ("none", "none", "move", "move", "holder", "mount", "appender")
"""Beside a move."""


class MovesDrill(Drill):
    """One store that moves between places of all kinds."""

    def __init__(
        self, root: Path, places: Places, seed: str, others: Places | None = None, *, mounts: bool, spark: bool = False
    ) -> None:
        """`others`: makes places of another kind, which every second move goes to."""
        super().__init__(root, places, seed, (*APPENDING, *_LOCAL))
        self.kinds = [places] if others is None else [others, places]
        self.small: dict[str, bytes] = {}
        self.removed: dict[str, bytes] = {}
        self.mountpoint = root / "mnt" if mounts else None
        self.mount: forked.Talking | None = None
        self.spark = spark
        self.watches: list[Watch] = []
        self.followers: list[Follower] = []

    def _life(self) -> Life:
        return Life(self.root, self.places, self.chosen, packs=_PACKED_BYTES)

    def moves(self, count: int) -> Counter[str]:
        """Move so many times; return what was done."""
        with ExitStack() as stack:
            stack.callback(self._end)
            if self.mountpoint is not None:
                self.mountpoint.mkdir()
                stack.callback(self._unmount)
            self._start()
            self._keep_mounted()
            self._open_readers(stack)
            for number in range(count):
                print(f"{number} of {count} moves: {dict(self.seen)}", flush=True)
                self._start()
                self._keep_mounted()
                self._work()
                self._write_log()
                self._listen(self.chosen.randrange(1, 20))
                self._move(self.kinds[number % len(self.kinds)]())
            for watch in self.watches:
                self.seen += watch.seen
        self.seen["records"] = sum(progress.number for progress in self.acknowledged.values())
        self._compare()
        self.life.end()
        self._lose_host()
        self._compare_small()
        return self.seen

    def _open_readers(self, stack: ExitStack) -> None:
        """Open them all, once there is something of everything to read."""
        for appender in self.appenders.values():
            while min(self.acknowledged[name].number for name in self._names_of(appender)) == 0:
                self._hear(appender.line())
        self._run("config", _LOG, f"retention_bytes={_KEPT_BYTES}")
        steady = sorted(self.acknowledged)
        for reader in open_readers(self.life.path, self.mountpoint, spark=self.spark):
            watch = Watch(reader, lambda: steady, self, self.seed)
            self.watches.append(watch)
            stack.callback(watch.end)
        for name in _FOLLOWED:
            follower = Follower(self.life.path, name, self.expected[name])
            self.followers.append(follower)
            stack.callback(follower.end)

    def _names_of(self, appender: forked.Talking) -> Sequence[str]:
        return next(self.appending[number].names for number, each in self.appenders.items() if each is appender)

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
        self._keep_mounted()
        for watch in self.watches:
            watch.require([*sorted(self.acknowledged), *sorted(self.small)])
        self._require_followed()

    def _server(self, place: Place) -> tuple[str, ...]:
        options = [str(option) for option in place.options]
        return tuple(options[options.index("--endpoint-url") :]) if "--endpoint-url" in options else ()

    def _beside(self, kill: str, mover: forked.Talking) -> None:
        self._listen(self.chosen.randrange(0, 12))
        if kill == "move":
            mover.kill()
        elif kill == "holder":
            self._kill_who_holds()
        elif kill == "mount":
            self._kill_mount()
        elif kill == "appender":
            self._kill(self.chosen.choice(list(self.appenders)))
            self.seen["appenders killed"] += 1
        else:
            self._work()

    def _kill_who_holds(self) -> None:
        holder = lock.current(StorePaths(self.life.path).holder)
        if self.mount is not None and holder is not None and holder.pid == self.mount.pid:
            self._kill_mount()
        elif self.holder is not None:
            self._require_no_error(self.holder.end()[1])
            self.holder = None
            self.seen["holders killed"] += 1

    def _everywhere(self) -> None:
        """Wait until every process that appends has had an answer in the new place."""
        for appender in list(self.appenders.values()):
            for _ in range(MOST_LINES + _ON_THE_WAY + 1):
                self._hear(appender.line())
        self._require_followed()

    def _write_log(self) -> None:
        """Let retention have something to drop."""
        for _ in range(2):
            for _ in range(_LOG_LINES):
                self._hear(self.appenders[len(self.appending) - 1].line())
            self._require_followed()

    def _require_followed(self) -> None:
        for follower in self.followers:
            follower.require(self.acknowledged[follower.name].end)

    def _require_note(self, before: Place) -> None:
        with closing(self._connected(before)) as storage:
            said = eventually(lambda: list_journal(storage).is_left, 10)
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
            return places.Place(location, store.path, store.settings.cold).open()

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
            lambda: self._run("offload"),
            lambda: self._run("evict", "w"),
            lambda: self._run("consolidate", "/"),
            lambda: self._run("gc", "--delete"),
            self._trim,
            self._restore,
        ]
        for work in self.chosen.sample(works, 2):
            work()
        if len(self.small) > _MOST_SMALL:
            self._remove()

    def _run(self, *words: str) -> None:
        done = self.life.run(*words)
        # Beside a move a command may meet the moment at which the place changes, and says so.
        beside = ("another address", "was given up", "Conflict", "process", "holder")
        assert done.code == 0 or any(text in done.err for text in beside), done
        self.seen[words[0]] += 1

    def _trim(self) -> None:
        """Drop a head as retention does, by hand: bytes that everybody may have read."""
        name = self.chosen.choice(self.appending[-1].names)
        before = self.acknowledged[name].end - _KEPT_BYTES // 2
        if before > 0:
            done = self.life.run("trim", "--yes", name, "--before", str(before))
            assert done.code == 0, done
            self.seen["trim"] += 1

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

    # What readers must have

    def ends(self, names: Sequence[str]) -> Mapping[str, int]:
        """Return where acknowledged bytes end now."""
        ended = self.acknowledged
        return {name: ended[name].end if name in ended else len(self.small[name]) for name in names}

    def kept(self, names: Sequence[str]) -> Sequence[str]:
        """Return those that lose no bytes and are never removed."""
        return [name for name in names if name in self.acknowledged and not name.startswith(f"{_LOG}/")]

    def require(self, name: str, data: bytes, end: int, who: str) -> None:
        """Raise AssertionError unless these are the segment's bytes, at least up to `end`."""
        if name in self.small:
            assert data == self.small[name], f"{who}: {name}"
            return
        trimmed = name.startswith(f"{_LOG}/")
        start = self.expected[name].start_of(data, who) if trimmed else 0
        assert start + len(data) >= end, f"{who}: {name} ends at {start + len(data)}, not {end}"
        assert not start or start + len(data) - start >= _KEPT_BYTES // 2, f"{who}: {name} begins at {start}"
        self.expected[name].require(start, data, who)

    def _compare_bytes(self, name: str, data: bytes, progress: Progress) -> None:
        self.require(name, data, progress.end, "cat")
        if name.startswith(f"{_LOG}/"):
            self.seen["heads dropped"] += len(data) < progress.end
        else:
            super()._compare_bytes(name, data, progress)

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

    # The mount

    def _keep_mounted(self) -> None:
        """Mount where no mount is; its readers wait meanwhile."""
        if self.mountpoint is None or self.mount is not None:
            return
        options = ("-o", "direct_io") if self.chosen.random() < 0.5 else ()
        self.mount = forked.Talking("tierfs", "--store", self.life.path, "mount", "-f", *options, self.mountpoint)
        assert eventually(self.mountpoint.is_mount), self.mount.end()

    def _kill_mount(self) -> None:
        """Kill it, and mount anew: all that a user of files has to do."""
        if self.mount is None:
            return
        with ExitStack() as waiting:
            users = [watch for watch in self.watches if watch.reader.kind in ("mount", "spark")]
            for watch in users:
                waiting.enter_context(watch.busy)
            self._unmount()
            self.seen["mounts killed"] += 1
            self._keep_mounted()
            for watch in users:
                assert isinstance(watch.reader, Program)
                watch.reader.let_go()

    def _unmount(self) -> None:
        if self.mount is not None:
            self._require_no_error(self.mount.end()[1])
            self.mount = None
        subprocess.run(["fusermount3", "-uz", str(self.mountpoint)], check=False, capture_output=True)

    def _require_no_error(self, logged: str) -> None:
        assert " ERROR " not in logged, logged
        assert "Traceback" not in logged, logged
