"""Adopt what others wrote: places, planners and the run over them. Part of the composition root."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path

from tierfs.app import verbs
from tierfs.app.store import Store
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest, NotFound, TierfsError
from tierfs.base.words.types import EntryKind, LocationId, SegmentId
from tierfs.engine.chunkstore.place import FILE_SCHEME, Place, provider_of
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.chunkstore.s3.location import S3_SCHEME, split_s3_url
from tierfs.engine.chunkstore.validate import is_relative
from tierfs.engine.ledger.single_object import MagicWords
from tierfs.engine.metadata import directories, policies
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering.adoption import pravega, pulsar, pulsar_names, rocketmq, slts, vanished
from tierfs.tiering.adoption.adopt import Adoption, AdoptionOutcome, LedgerAdoption, foresee
from tierfs.tiering.adoption.grow import stored_name
from tierfs.tiering.adoption.ledger_standing import linked_first
from tierfs.tiering.adoption.own_names import own_names, without_own
from tierfs.tiering.adoption.plan import AdoptionPlan, AnyPlan, LedgerPlan, LeftOut, SegmentPlan, bounded, plan_objects
from tierfs.tiering.adoption.pravega import plan_pravega
from tierfs.tiering.adoption.pulsar import Reading, plan_pulsar
from tierfs.tiering.adoption.pulsar_names import INDEX_SUFFIX
from tierfs.tiering.adoption.rocketmq import plan_rocketmq
from tierfs.tiering.adoption.tail import HELD_BACK, Tails, cut_to
from tierfs.tiering.adoption.vanished import Absent, Vanished
from tierfs.tiering.objects import ColdTier

OBJECTS, ROCKETMQ, PRAVEGA, PULSAR = "objects", "rocketmq", "pravega", "pulsar"

# Layouts whose last file grows for as long as its queue or stream lives.
GROWING = (ROCKETMQ, PRAVEGA)

# By whose names a place is recognised: those that no other program writes. A plain UUID may be anybody's.
_MARKS: Mapping[str, Callable[[str], object]] = {
    PULSAR: lambda name: ("-ledger-" in name or name.endswith(INDEX_SUFFIX)) and pulsar_names.parse_key(name),
    ROCKETMQ: rocketmq.parse,
    PRAVEGA: lambda name: slts.parse_chunk_name(name) or pravega.is_rolling_chunk(name),
}

# Names of a place that are looked at: one listing of a bucket.
_LOOKED_AT = 1000

HEAD_LEFT = "before a gap in its segment: the other system deletes the head"

_NO_ID = LocationId(0)
_S3_URL = f"{S3_SCHEME}://"

# Adds to a plan what the objects of a place become below a directory; reads headers from the place's storage.
Planner = Callable[[AdoptionPlan, ChunkStorage, Iterator[StoredObject], str], None]

_PLANNERS: Mapping[str, Planner] = {
    OBJECTS: lambda plan, _, objects, into: plan_objects(plan, objects, into),
    ROCKETMQ: lambda plan, _, objects, into: plan_rocketmq(plan, objects, into),
    PRAVEGA: plan_pravega,
}


@dataclass(frozen=True, slots=True)
class ForeignReach:
    """Access to a place by its URL; credentials are from botocore's chain or the profile."""

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """Options for the adoption of ledgers."""

    accept_loss: bool = False
    """Adopt without the entries that are missing at the end."""
    magic: MagicWords | None = None
    """Of objects of the first PIP's form."""


@dataclass(slots=True)
class Adopted:
    """The result of adopting one place, or its prospect."""

    place: LocationRecord
    plan: AdoptionPlan
    only: str = ""
    """The one object of it that is meant; "" for all."""
    followed: bool = False
    """Whether it is adopted again and again: more of its segments is expected."""
    outcomes: list[AdoptionOutcome] = field(default_factory=list)
    """Of its segments; those foreseen after a dry run."""
    vanished: list[Vanished] = field(default_factory=list)
    """Segments that were adopted from it and miss objects."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A foreign place, and the one object of it that is meant; "" means all."""

    location: LocationRecord
    only: str = ""


_LEDGER_OPTIONS = LedgerOptions()


class Adopter:
    """Plans and adopts places of one kind into one directory."""

    def __init__(
        self,
        store: Store,
        kind: str | None,
        into: str,
        reach: ForeignReach,
        ledgers: LedgerOptions = _LEDGER_OPTIONS,
        *,
        grows: bool = False,
        thorough: bool = True,
        tails: Tails | None = None,
    ) -> None:
        """Check `into`; raises InvalidRequest. Without a kind the first place's names tell it.

        `grows`: files of RocketMQ and streams of Pravega stay unsealed from their first adoption on, as more of them is
        expected, and their last objects are held back; `tails` knows those of the adoptions before. `thorough`: see
        grow.compare.
        """
        self._tails = tails or Tails()
        self._grows = grows
        self._thorough = thorough
        self.kind = kind
        self._recognises = kind is None
        self.ledgers = ledgers
        self._store = store
        self.into = names.join(names.split(into))
        self._reach = reach

    def plan(self, text: str, report: OnProgress = unseen) -> Adopted:
        """Look at a place, changing nothing. Raises what is wrong with it, NotFound when nothing is there."""
        place = self._place(text)
        plan = AdoptionPlan()
        with self._connected(place.location) as storage:
            with self._store.metadata.read() as txn:
                absent = Absent(txn, self.into, place.location)
            theirs = absent.seen(_objects(storage, place))
            if self._recognises:
                first = list(islice(theirs, _LOOKED_AT))
                self._recognise([] if place.only else [stored.name for stored in first], text)
                theirs = chain(first, theirs)
            listed = Meter(report, noun="listed object").each(theirs, lambda stored: stored.name)
            objects = bounded(listed, names.printable(text))
            with self._store.metadata.read() as txn:
                own = own_names(txn, place.location)
            foreign = without_own(plan, objects, place.location, own)
            if self.kind == PULSAR:
                in_files = provider_of(place.location.url).in_files(place.location.url)
                plan_pulsar(plan, storage, foreign, self.into, Reading(in_files, self.ledgers.magic))
            else:
                assert self.kind is not None
                _PLANNERS[self.kind](plan, storage, foreign, self.into)
        if not (plan.segments or plan.refused or plan.left_out or absent.any):
            raise NotFound(f"{names.printable(text)} is empty", remedy="check the URL and its prefix")
        with self._store.metadata.read() as txn:
            plan.segments = list(_as_stored(txn, plan))
            known = policies.foreign_at(txn, place.location)
            followed = self._grows or bool(known is not None and known.adoption.every_s)
            if followed:
                plan.segments = list(self._final(txn, plan))
        plan.segments += list(absent.emptied(plan))
        plan.check_names()
        gone = [] if place.only else absent.vanished(plan)
        return Adopted(place.location, plan, place.only, followed=followed, vanished=gone)

    def adopt(self, planned: Adopted, jobs: int, advance: Meter) -> None:
        """Adopt what was planned; every segment's outcome is noted."""
        self._allow(planned.place)
        segments = planned.plan.segments
        with self._connected(planned.place) as storage:
            common = (self._store.metadata, storage, planned.place, jobs, advance)
            if self.kind == PULSAR:
                options = self.ledgers
                ledgers = LedgerAdoption(
                    *common, cold=self._cold_tier(), accept_loss=options.accept_loss, magic=options.magic
                )
                planned.outcomes = ledgers.run([plan for plan in segments if isinstance(plan, LedgerPlan)])
            else:
                appended = self.kind in GROWING
                grows = planned.followed and appended
                adoption = Adoption(*common, appended=appended, grows=grows, thorough=self._thorough)
                planned.outcomes = adoption.run([plan for plan in segments if isinstance(plan, SegmentPlan)])
        vanished.note(self._store.metadata, planned.place, self.into, planned.vanished)

    def foresee(self, planned: Adopted) -> None:
        """Note what adopting would do with each segment, changing nothing."""
        planned.outcomes = [foresee(self._store.metadata, plan, planned.place) for plan in planned.plan.segments]

    def _final(self, txn: ReadTransaction, plan: AdoptionPlan) -> Iterator[AnyPlan]:
        """Yield the planned segments without bytes that their system may still change."""
        clock = self._store.clock
        self._tails.begin()
        for planned in plan.segments:
            if isinstance(planned, LedgerPlan) or not (planned.unfinished and planned.extents):
                yield planned
                continue
            last = planned.extents[-1].object
            settled = self._tails.settled(last, clock.monotonic_s(), clock.now_ms())
            cut = cut_to(planned, _length(txn, planned.name), settled)
            if cut is not planned:
                plan.left_out.append(LeftOut(last.name, HELD_BACK))
            yield cut
        self._tails.end()

    def _recognise(self, listed: Sequence[str], text: str) -> None:
        """Set the kind by names of a place. Raises InvalidRequest for a second place of another kind."""
        kind = next((kind for kind, is_name in _MARKS.items() if any(map(is_name, listed))), OBJECTS)
        if self.kind not in (None, kind):
            raise InvalidRequest(
                f"{names.printable(text)} is of {kind}, but an earlier place is of {self.kind}",
                remedy="adopt them one by one, or give the program that wrote both: --as",
            )
        self.kind = kind

    def _cold_tier(self) -> ColdTier | None:
        """Return the cold tier that the store itself writes to."""
        location = self._store.cold_location
        return None if location is None else self._store.cold_tier(location)[1]

    def _allow(self, place: LocationRecord) -> None:
        """Allow a place that a recovered journal named from now on, even if all of it was adopted."""
        metadata = self._store.metadata
        with metadata.read() as txn:
            known = policies.foreign_at(txn, place)
        if known is not None and known.from_journal:
            with metadata.write() as txn:
                policies.register_foreign(txn, place)

    def settle(self, report: OnProgress = unseen) -> TierfsError | None:
        """Publish what was adopted, if there is a bucket; return why not."""
        return None if self._store.cold_location_id is None else verbs.settle(self._store, report)

    def _place(self, text: str) -> _Place:
        if "://" in text:
            return self._url_place(text)
        return self._directory_place(Path(text))

    def _url_place(self, text: str) -> _Place:
        if text.startswith(_S3_URL):
            bucket, key = split_s3_url(text)
            server = f"{_S3_URL}{bucket}"
        else:
            from tierfs.engine.chunkstore.places import address  # here: a bucket or a directory needs none of it

            parsed = address.parse(text, self._reach.endpoint_url or "")
            server, key = replace(parsed, path="").url, parsed.path.removeprefix("/")
        prefix = key.removesuffix("/")
        if prefix and not is_relative(prefix):
            raise InvalidRequest(f"{names.printable(text)}: keys with empty or dotted components are not supported")
        parent, _, last = prefix.rpartition("/")
        if self.kind in (OBJECTS, None) and last and not text.endswith("/"):
            single = _Place(self._location(server, parent), last)
            with self._connected(single.location) as storage:
                if _exists(storage, last):
                    return single
        return _Place(self._location(server, prefix))

    def _location(self, server: str, prefix: str) -> LocationRecord:
        return LocationRecord(
            id=_NO_ID,
            url=f"{server}/{prefix}".removesuffix("/"),
            endpoint_url=self._reach.endpoint_url or "",
            region=self._reach.region or "",
            profile=self._reach.profile or "",
            writable=False,
        )

    def _directory_place(self, path: Path) -> _Place:
        real = path.resolve()
        if not real.exists():
            raise NotFound(f"{names.printable(str(path))} does not exist")
        root, only = (real, "") if real.is_dir() else (real.parent, real.name)
        if only and self.kind not in (OBJECTS, None):
            raise InvalidRequest(f"{names.printable(str(path))} is a file; only whole directories can be adopted")
        self._require_apart(root)
        return _Place(LocationRecord(id=_NO_ID, url=f"{FILE_SCHEME}{root}", writable=False), only)

    def _require_apart(self, root: Path) -> None:
        """Raise InvalidRequest when the directory and the store's own files overlap."""
        own = [self._store.path.resolve()]
        location_id = self._store.cold_location_id
        if location_id is not None:
            with self._store.metadata.read() as txn:
                url = policies.location(txn, location_id).url
            if url.startswith(FILE_SCHEME):
                own.append((self._store.path / url.removeprefix(FILE_SCHEME)).resolve())
        if any(root.is_relative_to(place) or place.is_relative_to(root) for place in own):
            raise InvalidRequest(f"{names.printable(str(root))} contains files of this store, which are not foreign")

    @contextmanager
    def _connected(self, location: LocationRecord) -> Iterator[ChunkStorage]:
        store = self._store
        storage = Place(location, store.path, store.settings.cold).shared(store.metrics)
        try:
            yield storage
        finally:
            storage.close()


def _as_stored(txn: ReadTransaction, plan: AdoptionPlan) -> Iterator[AnyPlan]:
    """Yield the planned segments, runs with the names of the segments that they continue.

    Of several runs that one segment was, the last one is it: its system is deleting the objects before.
    """
    last: dict[str, SegmentPlan] = {}
    for planned in plan.segments:
        if isinstance(planned, LedgerPlan):
            yield _linked_attempt(txn, plan, planned)
            continue
        if not planned.stem:
            yield planned
            continue
        named = replace(planned, name=stored_name(txn, planned))
        before = last.get(named.name)
        last[named.name] = named if before is None or before.start_offset < named.start_offset else before
        if before is not None:
            gone = min(before, named, key=lambda run: run.start_offset)
            plan.left_out.extend(LeftOut(extent.object.name, HEAD_LEFT) for extent in gone.extents)
    yield from last.values()


def _linked_attempt(txn: ReadTransaction, plan: AdoptionPlan, planned: LedgerPlan) -> LedgerPlan:
    """Return the plan of a ledger that begins with the attempt it is adopted from; the others are left out."""
    if not planned.others:
        return planned
    first = linked_first(txn, planned)
    if first.parts != planned.parts:
        every = [part.data.name for attempt in planned.attempts for part in attempt.parts]
        plan.left_out = [out for out in plan.left_out if out.what not in every]
        plan.left_out.extend(pulsar.left_out(first, every))
    return first


def _length(txn: ReadTransaction, name: str) -> int:
    """Return the length of a segment; 0 where there is none."""
    entry = directories.find(txn, name)
    segment = None
    if entry is not None and entry.kind is EntryKind.SEGMENT:
        segment = directories.segment(txn, SegmentId(entry.id))
    return 0 if segment is None else segment.length


def _objects(storage: ChunkStorage, place: _Place) -> Iterator[StoredObject]:
    if place.only:
        yield storage.stat(place.only)
    else:
        yield from storage.list("")


def _exists(storage: ChunkStorage, name: str) -> bool:
    try:
        storage.stat(name)
    except NotFound:
        return False
    return True
