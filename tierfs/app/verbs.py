"""Verbs that each process does by itself, whether or not another holds the store. Part of the composition root.

The verbs that need the holder are the table in holder/verbs.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import OnProgress, unseen
from tierfs.base.options.policy import OFF
from tierfs.base.options.precedence import Policies
from tierfs.base.words.errors import Conflict, TierfsError, Unavailable
from tierfs.base.words.types import Tier
from tierfs.engine.metadata import directories, policies
from tierfs.engine.metadata.tables import GARBAGE, INTENTS
from tierfs.engine.segments import create, managed_ledger_trim, rename, trash
from tierfs.engine.segments.delete import Deletion
from tierfs.engine.segments.trash import Removed
from tierfs.engine.segments.truncate import Truncation
from tierfs.tiering.garbage.collect import Collector
from tierfs.upkeep.holder import lock
from tierfs.upkeep.holder.lock import HeldElsewhere

if TYPE_CHECKING:
    from tierfs.engine.chunkstore.protocol import StoredObject
    from tierfs.engine.metadata.records import GarbageRecord, IntentRecord
    from tierfs.engine.metadata.transaction import ReadTransaction
    from tierfs.engine.segments.clone import Clone
    from tierfs.engine.segments.managed_ledger import ManagedLedgerWriter
    from tierfs.engine.segments.positions import Position
    from tierfs.engine.segments.rename import Renamed
    from tierfs.tiering.garbage.clock_acceptance import ClockAccepted
    from tierfs.tiering.garbage.dead_uploads import DeadUpload
    from tierfs.tiering.garbage.orphans import Orphan
    from tierfs.tiering.ledgers.elsewhere import OffloadElsewhere
    from tierfs.upkeep.holder.lock import Holder

_MS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class GarbageReport:
    """The lists of `tierfs gc`."""

    rows: tuple[GarbageRecord, ...]
    """Deletions to come, the next one first."""
    orphans: tuple[Orphan, ...]
    """Files and objects that no record names."""
    uploads: tuple[DeadUpload, ...] = ()
    """Uploads that will not be finished."""
    intents: tuple[IntentRecord, ...] = ()
    """Objects that an owner was making as it died; the next holder makes them garbage."""
    superseded: tuple[StoredObject, ...] = ()
    """Of the journal, where the key may not delete."""
    trash: tuple[Removed, ...] = ()
    """Removals that can be restored, the next one to end first."""


def delete(store: Store, path: str, *, recursive: bool, now: bool = False, report: OnProgress = unseen) -> Deletion:
    """Remove a segment or directory: it stays in the trash for as long as its policy says, and can be restored.

    With `now`, or `trash_age` 0, it is deleted: local files at once, cold objects after the grace period and not before
    the journal says that they are gone.
    """
    due_ms = _cold_due_ms(store)
    done = store.engine.delete(path, recursive=recursive, cold_due_ms=due_ms, to_trash=not now, report=report)
    _collect_local(store, report)
    return done


def move(store: Store, source: str, target: str) -> Renamed:
    """Give a segment, a stream or a directory another name; see rename.rename."""
    return rename.rename(store.metadata, source, target)


def clone(store: Store, source: str, target: str, *, end: int | None = None) -> Clone:
    """Make a segment of the first bytes of another one, without a copy; see clone.clone."""
    from tierfs.engine.segments.clone import clone as cloned

    done, ended = cloned(store.metadata, source, target, end=end)
    if ended is not None:
        store.files.protect(ended)
    return done


def truncate_head(store: Store, name: str, before_offset: int, report: OnProgress = unseen) -> Truncation:
    """Drop a segment's bytes below an offset; files and objects go as in `delete`.

    Raises NotFound, IsDirectory, or InvalidRequest naming the length.
    """
    done = store.engine.truncate(name, before_offset, cold_due_ms=_cold_due_ms(store))
    _collect_local(store, report)
    return done


def trim_ledgers(
    store: Store, path: str, before: Position, *, now: bool = False, report: OnProgress = unseen
) -> Deletion:
    """Remove the closed ledgers of a managed ledger before a position, each by itself, as `delete` does.

    Raises NotFound, or InvalidRequest for a segment or a position outside of the managed ledger.
    """
    remove = partial(store.engine.remove, cold_due_ms=_cold_due_ms(store), to_trash=not now)
    done = managed_ledger_trim.trim(store.metadata, path, before, remove)
    _collect_local(store, report)
    return done


@dataclass(frozen=True, slots=True)
class PoliciesChanged:
    """What became of policies at a path."""

    made: bool
    """Whether the path was missing, and is a directory now."""
    before: Mapping[str, str]
    """The settings of the path itself before, in their stored form."""
    held: Policies
    """In force there now."""


def change_policies(store: Store, path: str, wanted: Mapping[str, str], unset: Collection[str] = ()) -> PoliciesChanged:
    """Set policies at a path, in their stored form, and remove some there, in one commit; a missing path is made.

    Raises NotFound for a missing path where nothing is set, NotDirectory, and InvalidRequest for an unknown policy, for
    policies that contradict each other, or for a transform that is not installed.
    """
    if wanted.get("transform", OFF) != OFF:
        from tierfs.engine.ledger import transforms  # few policies need it

        transforms.named(wanted["transform"])
    with store.metadata.write() as txn:
        made = bool(wanted) and directories.find(txn, path) is None
        if made:
            create.make_directory(txn, path)
        before = policies.change(txn, path, put_settings=wanted, unset=unset)
        return PoliciesChanged(made, before, policies.at(txn, path))


def restore(store: Store, path: str, *, to: str = "", removal_id: int | None = None) -> tuple[str, Removed]:
    """Bring a removal back from the trash; see trash.restore."""
    return trash.restore(store.metadata, path, to=to, removal_id=removal_id)


def empty_trash(store: Store) -> int:
    """End all removals, whether due or not; return their number. The collection after it deletes the bytes."""
    return trash.end_due(store.metadata, all_of_them=True)


def settle(store: Store, report: OnProgress = unseen) -> TierfsError | None:
    """Publish and collect what is due, if that is possible now; return why not.

    The rest stays queued for the next command that writes to the bucket. A holder does it without being asked.
    """
    try:
        if store.cold_location_id is None:
            with lock.hold(store.paths.holder, store.clock):
                store.local_work().collect(report)
        else:
            from tierfs.upkeep.holder.perform import holding

            with holding(store, "publishing") as work:
                work.publish(report)
                work.collect(report)
    except HeldElsewhere:
        return None
    except (Conflict, Unavailable) as exc:
        return exc
    return None


def make_room(store: Store, first: str) -> int:
    """Evict cold bytes until appends have room, those of segment `first` first; return how many.

    Raises HeldElsewhere where another process holds the store and does so by itself, and NoColdTier.
    """
    from tierfs.upkeep.holder.perform import holding

    with holding(store, "eviction") as work:
        return work.make_room(first)


def open_managed_ledger(
    store: Store, path: str, *, take_over: bool = False, elsewhere: OffloadElsewhere | None = None
) -> ManagedLedgerWriter:
    """Become the writer of a managed ledger; see ManagedLedgerWriter.

    It offloads by `elsewhere`, or else where the store has a cold tier.
    """
    from tierfs.engine.segments.managed_ledger import ManagedLedgerWriter

    if elsewhere is not None:
        offload_prefix = elsewhere.offload_prefix
        return ManagedLedgerWriter(
            store.engine, path, take_over=take_over, offloader=lambda _, before, extra: offload_prefix(before, extra)
        )
    if store.cold_location_id is None:
        return ManagedLedgerWriter(store.engine, path, take_over=take_over)

    def offload(managed_ledger: str, before: Position, extra: Mapping[str, str]) -> Position:
        from tierfs.engine.segments.positions import Position
        from tierfs.upkeep.holder.perform import perform
        from tierfs.upkeep.holder.verbs import BEFORE, offload_prefix_of

        verb, options = offload_prefix_of({BEFORE: str(before)}, extra)
        done = perform(store, verb, managed_ledger, options)
        return Position.parse(done.first_unoffloaded)

    return ManagedLedgerWriter(store.engine, path, take_over=take_over, offloader=offload)


def garbage(store: Store, *, grace_s: int, report: OnProgress = unseen) -> GarbageReport:
    """Return what waits to be deleted, and orphans and dead uploads older than the grace period."""
    work = store.cold_work("gc")
    orphans = work.orphans(grace_s=grace_s, report=report)
    uploads = work.dead_uploads(grace_s=grace_s, report=report)
    with store.metadata.read() as txn:
        rows = tuple(row for _, row in txn.scan(GARBAGE))
        intents = tuple(_dead_intents(txn, lock.current(store.paths.holder)))
        in_trash = tuple(trash.removed(txn))
    return GarbageReport(rows, tuple(orphans), tuple(uploads), intents, tuple(work.superseded()), in_trash)


def accept_clock(store: Store) -> ClockAccepted:
    """Take the wall clock for right; see clocks.accept. Raises ClockDisagrees when the server's differs."""
    from tierfs.tiering.garbage import clock_acceptance

    if store.cold_location_id is not None:
        store.cold_work("gc").clocks.require_server_agrees()
    return clock_acceptance.accept(store.metadata, grace_s=store.settings.offload.grace_s)


def _dead_intents(txn: ReadTransaction, owner: Holder | None) -> Iterator[IntentRecord]:
    """Yield intents of an owner that is gone: all but those of the present one, and of jobs, which have none."""
    from tierfs.tiering.objects import is_job

    for _, intent in txn.scan(INTENTS):
        if not is_job(intent) and (owner is None or intent.created_ms < owner.since_ms):
            yield intent


def _cold_due_ms(store: Store) -> int:
    return store.clock.now_ms() + store.settings.offload.grace_s * _MS_PER_S


def _collect_local(store: Store, report: OnProgress) -> None:
    Collector(store.metadata, store.files, store.storage_of).collect(tiers=(Tier.LOCAL,), report=report)
