"""The store that a real command is stopped in, and everything that must hold of it afterwards."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests import forked, verbs
from tests.commands import Done
from tests.doubles.manual_clock import ManualClock
from tests.mount.waiting import eventually
from tests.servers.endpoint import S3Endpoint
from tierfs.app import store as app
from tierfs.app.check import Checking, Options
from tierfs.app.verbs import accept_clock, empty_trash, garbage
from tierfs.base.bytes.progress import unseen
from tierfs.base.system.clock import SystemClock
from tierfs.base.words.object_names import is_about_job
from tierfs.base.words.types import MIB, ROOT_DIRECTORY, Tier
from tierfs.engine.metadata import directories, policies
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.tiering.garbage.orphans import chunk_objects
from tierfs.tiering.ledgers.owners import companions, ledger_objects
from tierfs.tiering.objects import job_of, jobs

Contents = dict[str, tuple[int, bytes]]
"""Name -> the offset that a segment begins at, and its bytes."""

Words = tuple[object, ...]
TIMEOUT_S = 60
TWO_DAYS_S = 48 * 3600
SMALL_BYTES, LARGE_BYTES = 4096, 3 * MIB
"""Lengths of chunks; an object of two large ones is sent in parts."""


@dataclass(frozen=True)
class Place:
    """A cold tier of its own."""

    options: Words
    """Of `init` and `recover`."""
    url: str
    """As `move` takes it."""


Places = Callable[[], Place]
"""Makes a place where nothing is."""


def directories_in(path: Path) -> Places:
    """Return a maker of directories."""

    def place() -> Place:
        new = tempfile.mkdtemp(prefix="cold", dir=path)
        return Place(("--cold-dir", new), new)

    return place


def buckets_at(endpoint: S3Endpoint) -> Places:
    """Return a maker of buckets of a server."""

    def place() -> Place:
        url = f"s3://{endpoint.create_bucket()}/p"
        return Place(("--bucket", url, "--endpoint-url", endpoint.endpoint_url), url)

    return place


class Life:
    """A store that is small enough to compare as a whole."""

    def __init__(
        self,
        path: Path,
        places: Places,
        chosen: random.Random,
        *,
        large: bool = False,
        packs: tuple[int, ...] = (0, 1, 4 * MIB),
    ) -> None:
        """`packs`: one of these is the size below which objects are packed."""
        self.root, self.chosen, self._places = path, chosen, places
        self.place = places()
        self.number = 0
        self.numbers = itertools.count()
        self.chunk_bytes = LARGE_BYTES if large else SMALL_BYTES
        below_bytes = chosen.choice(packs)
        self.settings = f"[offload]\ngrace_s = 0\npack_below_bytes = {below_bytes}\n[background]\ntick_s = 0.05\n"
        self.make()

    @property
    def path(self) -> Path:
        """The directory of the present store."""
        return self.root / f"store{self.number}"

    def make(self) -> None:
        """Make the store."""
        done = self.run("init", *self.place.options)
        assert done.code == 0, done
        self.prepare()

    def prepare(self) -> None:
        """Give a store that a command made its small chunks, and no period of grace."""
        (self.path / "store.toml").write_text(self.settings)
        sizes = {"chunk_bytes": str(self.chunk_bytes), "object_bytes": str(2 * self.chunk_bytes)}
        with app.open_store(self.path) as store, store.metadata.write() as txn:
            policies.put(txn, ROOT_DIRECTORY, {**sizes, "deletion_lag": "0"})

    def elsewhere(self) -> Place:
        """A place that nothing is at."""
        return self._places()

    def data(self) -> bytes:
        """Bytes for one segment; their number lies at or beside a boundary as often as between two."""
        near = self.chosen.randrange(3) * self.chunk_bytes + self.chosen.choice([-1, 0, 1])
        return self.chosen.randbytes(max(1, self.chosen.choice([near, self.chosen.randrange(3 * self.chunk_bytes)])))

    def append(self, name: str, data: bytes | None = None, *, seal: bool = False, offload: bool = False) -> None:
        """Write a segment."""
        with app.open_store(self.path) as store:
            writer = store.engine.open_writer(name)
            writer.append(self.data() if data is None else data, last=True)
            store.engine.close_writer(writer)
            if seal:
                store.engine.seal(name)
            if offload:
                verbs.offload(store, name)

    def run(
        self,
        *words: object,
        stop: int | None = None,
        until: Callable[[], bool] | None = None,
        module: str = "tierfs",
    ) -> Done:
        """Run a command, to its end or, with `until`, until that is true and it was asked to end.

        With `stop` it is watched, and killed before that one of its changing calls unless it is 0.
        """
        if stop is not None:
            words, module = (self.root / "count", stop, module, *words), "tests.reality.stopped"
        if until is not None:
            return _ended(forked.Talking(module, *words), until)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TIERFS_")}
        environment["TIERFS_STORE"] = str(self.path)
        done = forked.run(module, [*map(str, words)], environment, b"", TIMEOUT_S)
        return _sound(Done(done.returncode, done.stdout.decode(), done.stderr.decode()))

    @property
    def calls(self) -> int:
        """How many changing calls the last watched command made, the one that it was killed at included."""
        return int((self.root / "count").read_text())

    def contents(self) -> Contents:
        """Read the whole store, and check its records, files and objects as `check` does."""
        with app.open_store(self.path) as store:
            self._check(store, deep=False)
            return self._read(store)

    def end(self) -> None:
        """Check that nothing is left but what the records name, and that the cold tier alone has every byte."""
        clock = ManualClock(SystemClock().now_ms())
        with app.open_store(self.path, clock) as store:
            accept_clock(store)
            before = self._read(store)
            empty_trash(store)
            # First: in two days the sweep of one upload would take the file of another for one that was left.
            verbs.offload(store)
            if self.place.options[0] == "--cold-dir":  # a server has a clock of its own, which would disagree
                clock.advance(TWO_DAYS_S)
            verbs.evict(store, force=True)
            for _ in range(2):  # the journal that no longer names an object is published between the two
                store.cold_work("gc").collect_all(grace_s=0)
            left = garbage(store, grace_s=0)
            assert [*left.orphans, *left.uploads, *left.intents, *left.superseded] == []
            assert list(store.files.names()) == []
            # A PUT of the dead may still land: its name is deleted once more, in an hour.
            assert not {row.name for row in left.rows} & self._objects(store)
            assert self._read(store) == before
            assert self._check(store, deep=True) == 0

    def _objects(self, store: app.Store) -> set[str]:
        """Return the names of the cold tier's objects, which are those that the records name."""
        with store.metadata.read() as txn:
            rows = [row for _, row in txn.scan(OBJECTS)]
            assert {row.tier for row in rows} <= {Tier.COLD}
            # The job of a driver that was killed may still be finished, for a day.
            unfinished = jobs(txn)
            named = {row.name for row in rows} | companions(txn).keys()
        assert store.cold_location_id is not None
        storage = store.storage_of(store.cold_location_id)
        listed = (*chunk_objects(storage), *ledger_objects(storage), *storage.list("uploads/"))
        names = {item.name for item in listed if not is_about_job(item.name) and job_of(item.name) not in unfinished}
        assert names == named, names ^ named
        assert list(storage.uploads("")) == []
        return names

    def _read(self, store: app.Store) -> Contents:
        with store.metadata.read() as txn:
            root = directories.find(txn, "")
            segments = list(directories.segments_below(txn, root, "")) if root else []
        read: Contents = {}
        for name, segment in segments:
            content = bytearray()
            verbs.cat(store, name, None, None, None, content.extend)
            read[name] = (segment.start_offset, bytes(content))
        return read

    def _check(self, store: app.Store, *, deep: bool) -> int:
        findings: list[object] = []
        checking = Checking(store.path, Options(deep=deep), findings.append, unseen)
        checking._check(store)
        done = checking.summary
        assert (done.damaged, done.lost, done.unchecked) == (0, 0, ""), findings
        return done.notes

    @property
    def is_store(self) -> bool:
        """Whether there is a store; what a killed `init`, `recover` or `load` leaves may not be one."""
        return (self.path / "store.toml").exists() and (self.path / "metadata").exists()

    def drop(self) -> None:
        """Lose the disk; the next store has a directory of its own."""
        shutil.rmtree(self.path)
        self.number += 1


def _ended(process: forked.Talking, until: Callable[[], bool]) -> Done:
    """Ask a process to end once something is true; it may have been killed before."""

    def gone() -> bool:
        try:
            return process.wait(0.01) != 0
        except subprocess.TimeoutExpired:
            return False

    assert eventually(lambda: gone() or until(), TIMEOUT_S)
    process.terminate()
    code = process.wait(TIMEOUT_S)
    lines, error = process.end()
    return _sound(Done(code, "".join(lines), error))


def _sound(done: Done) -> Done:
    assert "Traceback" not in done.err, done.err
    return done
