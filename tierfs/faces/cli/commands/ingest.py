"""Define tierfs ingest: copy files into segments. Run again, it continues where it stopped."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from itertools import takewhile

import click

from tierfs.app.room import Room
from tierfs.app.store import Store
from tierfs.base.bytes.parallel import Pool
from tierfs.base.bytes.progress import Meter, OnProgress
from tierfs.base.system.places import is_path, place_of_typed
from tierfs.base.words.errors import (
    Conflict,
    Fenced,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    StorageFull,
    TierfsError,
)
from tierfs.base.words.types import Ack
from tierfs.engine.metadata import directories, policies
from tierfs.engine.segments.bulk_create import BulkCreator
from tierfs.faces.cli import errors, output
from tierfs.faces.cli.commands.ingest_batches import batches, ingest_batch
from tierfs.faces.cli.commands.ingest_files import FileIngest, Stopped
from tierfs.faces.cli.commands.ingest_plan import Chosen, IngestPlan, Item, plan_ingest
from tierfs.faces.cli.group import command
from tierfs.faces.cli.options import jobs_option
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import Session

# Errors that concern one file; any other error stops the command.
_OF_ONE_FILE = (InvalidRequest, NotFound, PermissionDenied, Conflict)


@command("ingest")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--into", metavar="DIR", help="Target directory in the store  [default: the last PATH]")
@click.option("--include", multiple=True, metavar="GLOB", help="Copy only files whose name matches.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Skip files and directories whose name matches.")
@click.option(
    "--decompress",
    is_flag=True,
    help="Store the content of .gz, .xz, .zst and .bz2 files, under their names without that ending.",
)
@click.option(
    "--seal/--open",
    default=True,
    show_default=True,
    help="Seal each segment, or leave it open for a file that still grows.",
)
@jobs_option(4, "Number of files copied in parallel.")
def ingest(
    session: Session,
    paths: tuple[str, ...],
    into: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    decompress: bool,
    seal: bool,
    jobs: int,
) -> None:
    """Copy files into segments: a file becomes DIR/<file name>, a directory DIR/<relative path> of each file.

    With several paths a directory keeps its name, as with cp -r: DIR/<its name>/<relative path>. Each segment is sealed
    when its file is complete. Bytes that the store already has are skipped: an open segment that has the start of its
    file is continued. Links below a directory are not followed, and empty directories are created. Modes and times of
    files and modes of directories are kept; DIR itself gets the mode of the directory whose files it gets. Where the
    policy `ack` is cold, the command returns when all files are in the cold tier.

    Without --into the last PATH is DIR, as with cp: tierfs ingest /var/log/nginx nginx. A GLOB with a slash is matched
    with the path below PATH. Both options may be repeated; --exclude wins.

    A file whose segment has different bytes, such as a log after its rotation, is reported and not ingested. The other
    files continue; the exit code is that of the first error.
    """
    if into is None:
        *sources, into = paths
        _require_target(sources, into)
        paths = tuple(sources)
    with session.open_store() as store, progress_line(session) as show:
        name = store.segment_of_path(into)
        plan = plan_ingest(paths, name, show, Chosen(include, exclude, decompress))
        work = _Work(session, store, plan, show, seal=seal, jobs=jobs)
        work.run()
        if work.fatal is None and _is_acknowledged_cold(store, plan):
            work.fatal = _offload(store, name, show)
    _report(session, plan, work)


def _require_target(sources: Sequence[str], into: str) -> None:
    """Raise UsageError unless the last path can only be the target: the person may have forgotten --into."""
    context = click.get_current_context()
    if not sources:
        option = next(param for param in context.command.params if param.name == "into")
        raise click.MissingParameter(ctx=context, param=option)
    if (is_path(into) or os.path.lexists(into)) and place_of_typed(into) is None:
        raise click.UsageError(f"{into} is a path here: specify the directory of the store with --into")


def _is_acknowledged_cold(store: Store, plan: IngestPlan) -> bool:
    """Return whether the cold tier has to acknowledge any of the segments."""
    with store.metadata.read() as txn:
        known = (path for path in plan.parents if directories.exists(txn, path))
        return any(policies.at(txn, path).values.ack is Ack.COLD for path in known)


def _offload(store: Store, path: str, show: OnProgress) -> TierfsError | None:
    """Make all segments below a path cold; return the error that stops it."""
    from tierfs.upkeep.holder.perform import perform
    from tierfs.upkeep.holder.verbs import OFFLOAD

    try:
        perform(store, OFFLOAD, path, {}, show)
    except TierfsError as exc:
        return exc
    return None


class _Work:
    """Ingest several files in parallel; an error of one file does not stop the others, one of the store does."""

    def __init__(
        self, session: Session, store: Store, plan: IngestPlan, show: OnProgress, *, seal: bool, jobs: int
    ) -> None:
        self.counts = Counter[str]()
        """`segments` made, `bytes` appended, also to incomplete ones, files `skipped`, and `begun` before an error."""
        self.failed: list[tuple[Item, TierfsError]] = []
        self.fatal: BaseException | None = None
        self._room = Room(store, session)
        self._store = store
        self._seal = seal
        self._meter = Meter(show, plan.bytes, plan.files, "file")
        self._jobs = jobs
        self._plan = plan
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def run(self) -> None:
        """Ingest everything. An interruption stops it after the blocks in progress."""
        bulk = self._store.engine.bulk_creator()
        wanted = takewhile(lambda _: not self._stop.is_set(), batches(self._plan.items(), self._jobs))
        with closing(bulk), Pool(self._jobs, "tierfs-ingest") as pool:
            try:
                self._room.make("", partial(self._plan.directories.write, self._store.metadata), self._stop)
                for _ in pool.as_completed(partial(self._batch, bulk), wanted):
                    pass
            except (KeyboardInterrupt, StorageFull) as exc:
                self._end(exc)

    def _batch(self, bulk: BulkCreator, batch: list[Item]) -> None:
        """Ingest a batch in a thread of the pool; a raised error ends the other threads too."""
        try:
            if self._stop.is_set():
                return
            created = ingest_batch(self._store, bulk, batch, seal=self._seal)  # of small new files, in one commit
            for item, size_bytes in created:
                self._meter(size_bytes, item.segment, 1)
                self._count(bytes=size_bytes, segments=1)
            done = {item.segment for item, _ in created}
            for item in batch:
                if item.segment not in done:
                    self._one_file(item)
        except Stopped:
            return
        except BaseException as exc:
            self._end(exc)
            raise

    def _one_file(self, item: Item) -> None:
        """Ingest one file; raises Stopped when the command ends."""
        if self._stop.is_set():
            raise Stopped
        file = FileIngest(self._store, self._room, self._stop, self._meter, self._seal)
        try:
            changed = file.ingest(item)
        except BaseException as exc:
            self._count(bytes=file.written_bytes, begun=int(file.written_bytes > 0))
            if not isinstance(exc, (TierfsError, OSError)):
                raise
            error = errors.from_os_error(exc) if isinstance(exc, OSError) else exc
            with self._lock:
                self.failed.append((item, error))
            if isinstance(error, Fenced) or not isinstance(error, _OF_ONE_FILE):
                self._end(error)
        else:
            self._count(bytes=file.written_bytes, segments=int(changed), skipped=int(not changed))
        self._meter(0, item.segment, 1)

    def _count(self, **counts: int) -> None:
        with self._lock:
            self.counts.update(counts)

    def _end(self, error: BaseException) -> None:
        self.fatal = self.fatal or error
        self._stop.set()


def _report(session: Session, plan: IngestPlan, work: _Work) -> None:
    """Print the summary, warnings and every error; exit with the first error's code."""
    counts = work.counts
    failed = [*plan.refused]
    failed += [(item.path, error) for item, error in sorted(work.failed, key=lambda pair: pair[0].number)]
    data = {
        **{key: counts[key] for key in ("segments", "bytes", "skipped", "begun")},
        "special_files": plan.special,
        "errors": errors.parts(failed, "path"),
    }
    done = [f"ingested {output.size(counts['bytes'])} into {output.count(counts['segments'], 'segment')}"]
    if counts["skipped"]:
        done.append(f"{output.count(counts['skipped'], 'segment')} already complete")
    if counts["begun"]:
        done.append(f"{output.count(counts['begun'], 'file')} incomplete: repeat the command to continue")
    session.done(data, "; ".join(done))
    if not session.json:
        if plan.special:
            files = output.count(plan.special, "link or special file")
            session.warn(f"skipped {files}, the first: {plan.first_special}")
        session.warn_of_unfit(plan.unfit, plan.first_unfit)
    errors.report_parts(session, failed, work.fatal)
