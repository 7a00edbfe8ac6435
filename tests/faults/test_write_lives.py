"""Kills of a distributed stream, its tasks and the holder, with a journal whose PUTs fail: what the checkpoint says was
committed is what a recovery from the bucket alone brings back, once.

TIERFS_WRITE_KILLS sets the number of kills, TIERFS_SEED the seed.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests import forked, verbs
from tests.commands import tierfs
from tests.faults import write_life
from tests.faults.write_life import APPLICATION, INTO, TASKS, committed, rows_of
from tierfs.app import batch_write
from tierfs.app import store as app
from tierfs.metadata import directories
from tierfs.metadata.tables import OBJECTS
from tierfs.parallel import unseen
from tierfs.recovery.from_journal import recover_store
from tierfs.recovery.from_objects import recover_from_objects
from tierfs.setup.create import ColdChoice, init_store
from tierfs.tiering.batch_job import is_about_job
from tierfs.tiering.objects import job_of

KILLS = int(os.environ.get("TIERFS_WRITE_KILLS", "10"))
LIFE_S = 60.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 + 15 * KILLS)]


class Stream:
    """A store that loses its disk, and the checkpoint of the query that writes to it."""

    def __init__(self, path: Path, chosen: random.Random) -> None:
        self.path = path
        self.cold = path / "cold"
        self.work = path / "work"
        (self.work / "commits").mkdir(parents=True)
        self.cold.mkdir()
        self.chosen = chosen
        self.stores = 0
        self.said: list[str] = []
        init_store(self.store, ColdChoice(cold_dir=self.cold))
        write_life.prepare(self.store)

    @property
    def store(self) -> Path:
        """The directory of the present store."""
        return self.path / f"store{self.stores}"

    def live(self) -> int:
        """Let a driver and a holder live until they are killed; return the number of kills."""
        seeds = [self.chosen.randrange(2**32) for _ in range(2)]
        away = ("away",) if self.chosen.random() < 0.3 else ()
        holder = forked.Talking("tests.faults.write_life", "holder", self.store, self.work, seeds[0], *away)
        driver = forked.Talking("tests.faults.write_life", "driver", self.store, self.work, seeds[1], *away)
        codes = [driver.wait(LIFE_S)]
        for process in (driver, holder):
            errors = process.end()[1]
            assert "Traceback" not in errors, errors
        self.said.append(f"driver {seeds[1]} ended with {codes[0]}, {len(committed(self.work))} batches {away}")
        return 1 + (codes[0] < 0)

    def lose_disk(self, *, journal: bool) -> None:
        """Recover from the bucket alone, with or without its journal."""
        shutil.rmtree(self.store)
        self.stores += 1
        choice = ColdChoice(cold_dir=self.cold)
        journal = journal or not committed(self.work)  # without an object there is nothing to recover from
        self.said.append(f"recovery {'from the journal' if journal else 'from objects'}")
        if journal:
            recover_store(self.store, choice, unseen)
        else:
            shutil.rmtree(self.cold / "journal", ignore_errors=True)
            recover_from_objects(self.store, choice, unseen, lambda _: None)
        write_life.prepare(self.store)

    def check(self) -> None:
        """Compare the rows with those of the committed batches; the one under way is whole or absent."""
        done = committed(self.work)
        assert done == list(range(len(done)))
        with app.open_store(self.store) as store:
            found = Counter(self._rows(store))
            last = len(done) + batch_write.is_committed(store, APPLICATION, len(done))
            assert all(batch_write.is_committed(store, APPLICATION, batch) for batch in done)
        wanted = Counter(row for batch in range(last) for part in range(TASKS) for row in rows_of(batch, part))
        assert found == wanted, (wanted - found, found - wanted)

    def check_bounded(self) -> None:
        """After a commit and a collection each job with bytes has a manifest and a marker, and the application one."""
        with app.open_store(self.store) as store:
            job = batch_write.begin(store, APPLICATION, INTO)
            batch_write.commit(store, job, write_life.run_task(job.upload, 0, 0), len(committed(self.work)) + 1)
            verbs.collect(store, grace_s=0)
            with store.metadata.read() as txn:
                used = {job_of(record.name) for _, record in txn.scan(OBJECTS) if job_of(record.name)}
            assert store.cold_location_id is not None
            listed = [one.name for one in store.storage_of(store.cold_location_id).list("uploads/")]
        beside = [name for name in listed if is_about_job(name) and job_of(name) in used]
        rest = [name for name in listed if job_of(name) not in used]
        assert len(beside) <= 2 * len(used)
        assert [name for name in rest if is_about_job(name)] == rest
        assert len(rest) <= 1

    def _rows(self, store: app.Store) -> list[bytes]:
        with store.metadata.read() as txn:
            entry = directories.find(txn, INTO)
            names = [name for name, _ in directories.segments_below(txn, entry, INTO)] if entry else []
        content = bytearray()
        for name in names:
            verbs.cat(store, name, None, None, None, content.extend)
        return bytes(content).splitlines(keepends=True)


def test_what_the_checkpoint_says_was_committed_is_in_the_bucket_once(tmp_path: Path) -> None:
    seed = int(os.environ.get("TIERFS_SEED", random.randrange(2**32)))
    stream = Stream(tmp_path, random.Random(seed))
    stream.said.append(f"seed {seed}")
    kills = 0
    try:
        while kills < KILLS:
            kills += stream.live()
            if stream.chosen.random() < 0.5:
                stream.lose_disk(journal=stream.chosen.random() < 0.5)
                stream.check()
        stream.lose_disk(journal=True)
        stream.check()
        stream.lose_disk(journal=False)
        stream.check()
        stream.check_bounded()
        assert tierfs("fsck", "--deep", store=stream.store).code == 0
    finally:
        print("\n".join(stream.said))
