"""One life of a process of a distributed stream: it works on, and is killed at a call that its seed chooses.

    python -m tests.faults.write_life driver|holder STORE WORK SEED [away]

The driver does what Spark's does, without Spark: batch N+1 is planned once N is in WORK/commits, its tasks upload in
processes of their own, some of which die, the commit's version is the batch's number, and WORK/commits/N is written
after it returned. The holder publishes, consolidates and collects. PUTs of the journal fail at random, with and without
their effect; all of them while it is `away`.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tierfs.app import batch_write
from tierfs.app import store as app
from tierfs.app.upload_task import UploadSpec
from tierfs.chunkstore.directory.storage import DirectoryStorage
from tierfs.errors import TierfsError, Unavailable
from tierfs.holder.verbs import holding
from tierfs.metadata.ledger_and_batch_records import UploadedSegment
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.transaction import WriteTransaction
from tierfs.parallel import unseen
from tierfs.tiering.batch_job import is_manifest

APPLICATION = "stream"
INTO = "out"
TASKS = 2
_SETTINGS = (
    "\n[cold]\nattempts = 2\nretry_base_s = 0\nretry_max_s = 0\n[offload]\ngrace_s = 0\ncheckpoint_entries = 7\n"
)
_LAST_CALL = {"driver": 160, "holder": 60}
_VERBS = ("put", "list", "delete", "stat", "read_into")
_DEADLINE_S = 0.3
_LOST_PUT, _LOST_ANSWER, _LOST_TASK, _MANIFEST_IS_LAST = 0.2, 0.1, 0.3, 0.2


def rows_of(batch: int, partition: int) -> list[bytes]:
    """Return the rows of one task, the same at each repeat."""
    return [b"batch %d task %d row %d\n" % (batch, partition, row) for row in range(1 + (3 * batch + partition) % 9)]


def prepare(store: Path) -> None:
    """Let a new store neither wait for retries nor keep what was replaced."""
    (store / "store.toml").write_text(_SETTINGS)


def committed(work: Path) -> list[int]:
    """Return the batches that the checkpoint says were committed."""
    return sorted(int(each.name) for each in (work / "commits").iterdir())


class Fate:
    """Counts calls of the cold tier and transactions, and kills this process at one of them."""

    def __init__(self, chosen: random.Random, last_call: int, *, journal_away: bool = False) -> None:
        self._chosen = chosen
        self._left = chosen.randrange(1, last_call)
        self._after_manifest = chosen.random() < _MANIFEST_IS_LAST
        self._lost_put = 1.0 if journal_away else _LOST_PUT

    def advance(self) -> None:
        """Count a moment; die if it is the chosen one."""
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        """Watch every call of a cold tier that is a directory, and every transaction that writes."""
        for verb in _VERBS:
            setattr(DirectoryStorage, verb, self._watched(getattr(DirectoryStorage, verb)))
        setattr(DirectoryStorage, "put", self._losing(DirectoryStorage.put))  # noqa: B010
        write = MetadataStore.write

        @contextmanager
        def watched(metadata: MetadataStore) -> Iterator[WriteTransaction]:
            self.advance()
            with write(metadata) as txn:
                yield txn
            self.advance()

        setattr(MetadataStore, "write", watched)  # noqa: B010

    def _watched(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*words: Any, **named: Any) -> Any:
            self.advance()
            done = verb(*words, **named)
            self.advance()
            return done

        return watched

    def _losing(self, put: Callable[..., Any]) -> Callable[..., Any]:
        def losing(storage: Any, name: str, *words: Any, **named: Any) -> Any:
            at_random = self._chosen.random() if name.startswith("journal/") else 2.0
            if at_random < self._lost_put:
                raise Unavailable("503 before")
            done = put(storage, name, *words, **named)
            if self._after_manifest and is_manifest(name):  # between manifest and commit
                os.kill(os.getpid(), signal.SIGKILL)
            if at_random < self._lost_put + _LOST_ANSWER:
                raise Unavailable("503 after")
            return done

        return losing


def run_task(spec: UploadSpec, batch: int, partition: int) -> tuple[UploadedSegment, ...]:
    """Upload the rows of a task in several objects."""
    with spec.task(partition) as task:
        upload = task.open(f"part-{partition}-{spec.plan.job[:12]}")
        for row in rows_of(batch, partition):
            upload.write(row)
            task.limit_memory(40)
        return task.finish()


def lose_task(spec: UploadSpec, batch: int, partition: int, last_call: int) -> None:
    """Run a task in a process that dies at one of its calls."""
    child = os.fork()
    if not child:
        Fate(random.Random(last_call), 2 + last_call).install()
        with suppress(TierfsError):
            run_task(spec, batch, partition)
        os._exit(0)
    os.waitpid(child, 0)


def drive(store_path: Path, work: Path, chosen: random.Random) -> None:
    """Write batches until this process is killed, or an error ends the query as it ends Spark's."""
    while True:
        batch = len(committed(work))
        with app.open_store(store_path) as store:
            job = batch_write.begin(store, APPLICATION, INTO)
        uploaded: list[UploadedSegment] = []
        for partition in range(TASKS):
            if chosen.random() < _LOST_TASK:
                lose_task(job.upload, batch, partition, chosen.randrange(1, 12))
            uploaded += run_task(job.upload, batch, partition)
        with app.open_store(store_path) as store:
            try:
                batch_write.commit(store, job, uploaded, batch)
            except TierfsError:
                batch_write.abort(store, job)
                raise
        (work / f"{batch}.new").touch()
        (work / f"{batch}.new").rename(work / "commits" / str(batch))


def hold(store_path: Path) -> None:
    """Do cold work until this process is killed."""
    while True:
        with suppress(TierfsError), app.open_store(store_path) as store, holding(store, "a holder") as cold:
            cold.publish()
            cold.consolidate("", dry_run=False, report=unseen)
            cold.collect()


def main() -> None:
    """Live until the seed's moment."""
    role, store, work, seed = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    chosen = random.Random(seed)
    Fate(chosen, _LAST_CALL[role], journal_away="away" in sys.argv[5:]).install()
    batch_write._PUBLISH_WAIT_S = _DEADLINE_S
    if role == "holder":
        hold(store)
    with suppress(TierfsError):
        drive(store, work, chosen)


if __name__ == "__main__":
    main()
