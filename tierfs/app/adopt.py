"""Adopt what others wrote: places, planners and the run over them. Part of the composition root."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from tierfs.app import verbs
from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest, NotFound, TierfsError
from tierfs.base.words.types import EntryKind, SegmentId
from tierfs.engine.chunkstore.place import FILE_SCHEME, USUAL, Place, Server
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

_S3_URL = f"{S3_SCHEME}://"

# Adds to a plan what the objects of a place become below a directory; reads headers from the place's storage.
Planner = Callable[[AdoptionPlan, ChunkStorage, Iterator[StoredObject], str], None]

_PLANNERS: Mapping[str, Planner] = {
    OBJECTS: lambda plan, _, objects, into: plan_objects(plan, objects, into),
    ROCKETMQ: lambda plan, _, objects, into: plan_rocketmq(plan, objects, into),
    PRAVEGA: plan_pravega,
}


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

    place: Place
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
class AdoptionSource:
    """A foreign place, and the one object of it that is meant; "" means all."""

    place: Place
    text: str
    """As messages name it."""
    only: str = ""


_LEDGER_OPTIONS = LedgerOptions()


class Adopter:
    """Plans and adopts places of one kind into one directory."""

    def __init__(
        self,
        store: Store,
        kind: str | None,
        into: str,
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

    def find(self, text: str, server: Server = USUAL) -> AdoptionSource:
        """Return the place of a URL, at a server, or of a path. Raises InvalidRequest, and NotFound for a path."""
        return self._at_url(text, server) if "://" in text else self._at_path(text)

    def plan(self, source: AdoptionSource, report: OnProgress = unseen) -> Adopted:
        """Look at a place, changing nothing. Raises what is wrong with it, NotFound when nothing is there."""
        self._require_apart(source.place)
        plan, location = AdoptionPlan(), source.place.record
        with closing(source.place.shared(self._store.metrics)) as storage:
            with self._store.metadata.read() as txn:
                absent = Absent(txn, self.into, location)
            theirs = absent.seen(_objects(storage, source))
            if self._recognises:
                first = list(islice(theirs, _LOOKED_AT))
                self._recognise([] if source.only else [stored.name for stored in first], source.text)
                theirs = chain(first, theirs)
            listed = Meter(report, noun="listed object").each(theirs, lambda stored: stored.name)
            objects = bounded(listed, names.printable(source.text))
            with self._store.metadata.read() as txn:
                own = own_names(txn, location)
            foreign = without_own(plan, objects, location, own)
            if self.kind == PULSAR:
                plan_pulsar(plan, storage, foreign, self.into, Reading(source.place.in_files, self.ledgers.magic))
            else:
                assert self.kind is not None
                _PLANNERS[self.kind](plan, storage, foreign, self.into)
        if not (plan.segments or plan.refused or plan.left_out or absent.any):
            raise NotFound(f"{names.printable(source.text)} is empty", remedy="check the URL and its prefix")
        with self._store.metadata.read() as txn:
            plan.segments = list(_as_stored(txn, plan))
            known = policies.foreign_at(txn, location)
            followed = self._grows or bool(known is not None and known.adoption.every_s)
            if followed:
                plan.segments = list(self._final(txn, plan))
        plan.segments += list(absent.emptied(plan))
        plan.check_names()
        gone = [] if source.only else absent.vanished(plan)
        return Adopted(source.place, plan, source.only, followed=followed, vanished=gone)

    def adopt(self, planned: Adopted, jobs: int, advance: Meter) -> None:
        """Adopt what was planned; every segment's outcome is noted."""
        segments, location = planned.plan.segments, planned.place.record
        self._allow(location)
        with closing(planned.place.shared(self._store.metrics)) as storage:
            common = (self._store.metadata, storage, location, jobs, advance)
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
        vanished.note(self._store.metadata, location, self.into, planned.vanished)

    def foresee(self, planned: Adopted) -> None:
        """Note what adopting would do with each segment, changing nothing."""
        location = planned.place.record
        planned.outcomes = [foresee(self._store.metadata, plan, location) for plan in planned.plan.segments]

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

    def _allow(self, location: LocationRecord) -> None:
        """Allow a place that a recovered journal named from now on, even if all of it was adopted."""
        metadata = self._store.metadata
        with metadata.read() as txn:
            known = policies.foreign_at(txn, location)
        if known is not None and known.from_journal:
            with metadata.write() as txn:
                policies.register_foreign(txn, location)

    def settle(self, report: OnProgress = unseen) -> TierfsError | None:
        """Publish what was adopted, if there is a bucket; return why not."""
        return None if self._store.cold_location_id is None else verbs.settle(self._store, report)

    def _at_url(self, text: str, server: Server) -> AdoptionSource:
        if text.startswith(_S3_URL):
            bucket, key = split_s3_url(text)
            host = f"{_S3_URL}{bucket}"
        else:
            from tierfs.engine.chunkstore.places import address  # here: a bucket or a directory needs none of it

            parsed = address.parse(text, server.endpoint_url)
            host, key = replace(parsed, path="").url, parsed.path.removeprefix("/")
        prefix = key.removesuffix("/")
        if prefix and not is_relative(prefix):
            raise InvalidRequest(f"{names.printable(text)}: keys with empty or dotted components are not supported")
        parent, _, last = prefix.rpartition("/")
        if self.kind in (OBJECTS, None) and last and not text.endswith("/"):
            place = self._below(host, parent, server)
            with closing(place.shared(self._store.metrics)) as storage:
                if _exists(storage, last):
                    return AdoptionSource(place, text, last)
        return AdoptionSource(self._below(host, prefix, server), text)

    def _below(self, host: str, prefix: str, server: Server) -> Place:
        return Place.foreign(f"{host}/{prefix}".removesuffix("/"), server, self._store.settings.cold)

    def _at_path(self, text: str) -> AdoptionSource:
        real = Path(text).resolve()
        if not real.exists():
            raise NotFound(f"{names.printable(text)} does not exist")
        root, only = (real, "") if real.is_dir() else (real.parent, real.name)
        if only and self.kind not in (OBJECTS, None):
            raise InvalidRequest(f"{names.printable(text)} is a file; only whole directories can be adopted")
        return AdoptionSource(Place.foreign(f"{FILE_SCHEME}{root}", USUAL, self._store.settings.cold), text, only)

    def _require_apart(self, place: Place) -> None:
        """Raise InvalidRequest when a directory and the store's own files overlap."""
        root = place.directory
        own = self._store.cold_location
        directories = [self._store.path, None if own is None else self._store.place_of(own).directory]
        ours = [each.resolve() for each in directories if each is not None]
        if root is not None and any(root.is_relative_to(each) or each.is_relative_to(root) for each in ours):
            raise InvalidRequest(f"{names.printable(str(root))} contains files of this store, which are not foreign")


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


def _objects(storage: ChunkStorage, source: AdoptionSource) -> Iterator[StoredObject]:
    if source.only:
        yield storage.stat(source.only)
    else:
        yield from storage.list("")


def _exists(storage: ChunkStorage, name: str) -> bool:
    try:
        storage.stat(name)
    except NotFound:
        return False
    return True
