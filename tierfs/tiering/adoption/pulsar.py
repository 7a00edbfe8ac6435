"""adopt pulsar: the ledgers that a Pulsar cluster offloaded, in both of its forms and the first PIP's.

{uuid}-ledger-{id}, {uuid}-ledger-{id}-index     the data and the index object of one attempt at a ledger
{uuid}, {uuid}-index                             those of the streaming form, with several ledgers

Names pair the objects; every name is untrusted, and any prefix up to a last slash is ignored, as Pulsar writes to the
root of the bucket. The indexes, which are read here, name the managed ledger and the first entries. The entries are
read, checked and adopted later (ledger_read).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.bytes.parallel import Pool
from tierfs.base.words.errors import DataLoss, InvalidRequest, TierfsError, Unavailable
from tierfs.base.words.names import LedgerKey, printable
from tierfs.base.words.units import count
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.ledger import keys as object_keys
from tierfs.engine.ledger.deviations import Deviations
from tierfs.engine.ledger.index import LedgerIndex, StreamingIndex
from tierfs.engine.ledger.single_object import MagicWords
from tierfs.reading import ledger_objects
from tierfs.reading.ledger_objects import METADATA_SUFFIX
from tierfs.tiering.adoption.plan import MAX_OBJECTS, AdoptionPlan, LedgerPart, LedgerPlan, LeftOut, readable
from tierfs.tiering.adoption.pulsar_names import INDEX_SUFFIX, UNKNOWN, ledger_name, parse_key

OTHER_ATTEMPT = "another attempt at a ledger that is adopted from one attempt's objects"
ORPHAN_INDEX = "an index without its data object, of a ledger that was offloaded again"

# Indexes that are read in parallel: each is three small requests, and up to 4 MiB (a guess).
_LOOKS = 16

# Limit of the streaming form (a guess): Pulsar closes an object after minutes, each ledger reads the index again.
_MAX_LEDGERS_PER_INDEX = 10_000


@dataclass(frozen=True, slots=True)
class Reading:
    """Options for reading a place."""

    in_files: bool
    """Whether user metadata are in a file beside each object, as a directory has none."""
    magic: MagicWords | None = None
    """Magic words of the first PIP's form, whose objects are searched for only with them."""


@dataclass(frozen=True, slots=True)
class _FoundObjects:
    """A ledger, or a part of one, as one pair of objects has it."""

    managed_ledger: str
    ledger_id: int
    part: LedgerPart
    streaming: bool
    complete: bool
    entries: int | None
    payload_bytes: int

    @property
    def age(self) -> tuple[bool, int, int, str]:
        """Sort key of attempts; the greatest is chosen."""
        written = self.part.index or self.part.data
        return self.complete, 0 if self.streaming else self.entries or 0, written.modified_ms, written.name

    @property
    def content(self) -> tuple[int | None, int]:
        """The facts that all attempts at a closed ledger share."""
        return self.entries, self.payload_bytes


@dataclass(frozen=True, slots=True)
class _Pair:
    """A data object, and its index object if it has one."""

    key: LedgerKey
    data: StoredObject
    index: StoredObject | None


@dataclass(slots=True)
class _Look:
    """Result of reading a pair."""

    ledgers: list[_FoundObjects] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    unversioned: list[str] = field(default_factory=list)
    """Objects in a directory without the file that would contain their format version."""


def plan_pulsar(
    plan: AdoptionPlan, storage: ChunkStorage, listed: Iterable[StoredObject], into: str, reading: Reading
) -> None:
    """Read the indexes and plan each ledger as INTO/<managed ledger>/<ledger id, 20 digits>; see ledger_name."""
    orphans: list[tuple[str, LedgerKey]] = []
    pairs = _pairs(plan, {stored.name: stored for stored in readable(plan, listed)}, reading, orphans)
    ledgers: dict[tuple[str, int], list[_FoundObjects]] = defaultdict(list)
    unversioned: list[str] = []
    ledger_count = 0
    for pair, look in _looked(storage, pairs, reading):
        if isinstance(look, TierfsError):
            plan.refused.append(((pair.index or pair.data).name, look))
            continue
        plan.left_out.extend(look.left_out)
        unversioned.extend(look.unversioned)
        for ledger in look.ledgers:
            ledgers[ledger.managed_ledger, ledger.ledger_id].append(ledger)
        ledger_count += len(look.ledgers)
        if ledger_count > MAX_OBJECTS:
            raise InvalidRequest(
                f"the place has more than {MAX_OBJECTS:,} ledgers", remedy="adopt its parts one by one"
            )
    known = {ledger_id for _, ledger_id in ledgers}
    for name, key in orphans:
        if key.ledger_id in known:
            plan.left_out.append(LeftOut(name, ORPHAN_INDEX))
        else:
            plan.refused.append((name, DataLoss(f"{printable(name)} is an index without its data object")))
    for (managed_ledger, ledger_id), candidates in ledgers.items():
        _add(plan, ledger_name(into, managed_ledger, ledger_id), candidates)
    _warn(plan, unversioned, [parts[0] for (managed_ledger, _), parts in ledgers.items() if not managed_ledger])


def _warn(plan: AdoptionPlan, unversioned: list[str], nameless: list[_FoundObjects]) -> None:
    if unversioned:
        first = printable(unversioned[0])
        plan.warnings.append(
            f"the format version of {count(len(unversioned), 'file')} is unknown: the metadata files are missing; "
            f"the first: {first}{METADATA_SUFFIX}"
        )
    if nameless:
        first = printable(nameless[0].part.data.name)
        plan.warnings.append(
            f"the managed ledger of {count(len(nameless), 'ledger')} is unknown: {UNKNOWN}/... is used; the first: "
            f"{first}"
        )


def _pairs(
    plan: AdoptionPlan,
    objects: Mapping[str, StoredObject],
    reading: Reading,
    orphans: list[tuple[str, LedgerKey]],
) -> Iterator[_Pair]:
    """Yield the pairs by name; other objects are left out, and indexes without their data object are `orphans`."""
    for name, stored in objects.items():
        key = parse_key(name)
        if key is None:
            beside = reading.in_files and name.endswith(METADATA_SUFFIX)
            if not (beside and parse_key(name.removesuffix(METADATA_SUFFIX))):
                plan.left_out.append(LeftOut(name, "not a name of Pulsar's"))
        elif key.is_index:
            data = objects.get(name.removesuffix(INDEX_SUFFIX))
            if data is None:
                orphans.append((name, key))
            else:
                yield _Pair(key, data, stored)
        elif name + INDEX_SUFFIX not in objects:
            if reading.magic is not None and key.ledger_id is not None:
                yield _Pair(key, stored, None)
            else:
                why = "a data object without its index: not offloaded, or of the first PIP's form (--magic)"
                plan.left_out.append(LeftOut(name, why))


def _looked(
    storage: ChunkStorage, pairs: Iterable[_Pair], reading: Reading
) -> Iterator[tuple[_Pair, _Look | TierfsError]]:
    """Read the pairs, many in parallel. Raises Unavailable when the place does not answer."""

    def look(pair: _Pair) -> tuple[_Pair, _Look | TierfsError]:
        try:
            return pair, _look(storage, pair, reading)
        except Unavailable:
            raise
        except TierfsError as exc:
            return pair, exc

    with Pool(_LOOKS, "tierfs-look") as pool:
        yield from pool.in_order(look, list(pairs))


def _look(storage: ChunkStorage, pair: _Pair, reading: Reading) -> _Look:
    """Read the metadata and the index of a pair. Raises DataLoss for a pair that is not a ledger."""
    look = _Look()
    named = [_metadata(storage, stored, look, reading) for stored in (pair.index, pair.data) if stored is not None]
    managed_ledger = next(filter(None, map(object_keys.managed_ledger, named)), "")
    if pair.index is None:
        return _look_at_single(storage, pair, reading, look, managed_ledger)
    deviations = Deviations()
    index = ledger_objects.read_index(storage, pair.index, deviations)
    if isinstance(index, StreamingIndex):
        look.ledgers.extend(_streaming(index, pair, managed_ledger))
    else:
        look.ledgers.append(_format_1(index, pair, managed_ledger))
    return look


def _metadata(storage: ChunkStorage, stored: StoredObject, look: _Look, reading: Reading) -> Mapping[str, str]:
    """Return an object's user metadata after a check of its format version, which may be missing in a directory."""
    if reading.in_files:
        beside = ledger_objects.metadata_beside(storage, stored.name)
        if beside is None:
            look.unversioned.append(stored.name)
            return {}
        object_keys.check_version(beside, stored.name)
        return beside
    metadata = {key.lower(): value for key, value in storage.stat(stored.name).metadata.items()}
    object_keys.check_version(metadata, stored.name)
    return metadata


def _format_1(index: LedgerIndex, pair: _Pair, managed_ledger: str) -> _FoundObjects:
    if pair.key.ledger_id is None:
        raise DataLoss(
            f"{printable(pair.data.name)}: its index has one ledger, but its name does not contain the ledger id"
        )
    return _FoundObjects(
        managed_ledger or ledger_objects.managed_ledger(index.metadata),
        pair.key.ledger_id,
        LedgerPart(pair.data, pair.index, pair.key.uuid, 0, pair.data.length_bytes),
        streaming=False,
        complete=pair.data.length_bytes >= index.data_object_length,
        entries=index.metadata.readable_last_entry_id + 1,
        payload_bytes=max(0, index.metadata.length),
    )


def _streaming(index: StreamingIndex, pair: _Pair, managed_ledger: str) -> Iterator[_FoundObjects]:
    if len(index.sections) > _MAX_LEDGERS_PER_INDEX:
        what = printable(pair.index.name if pair.index else "")
        raise DataLoss(f"{what} describes {len(index.sections)} ledgers; one has at most {_MAX_LEDGERS_PER_INDEX}")
    sizes = index.sizes()
    for section in index.sections:
        if not section.ledger_id >= 0:
            raise DataLoss(f"{printable(pair.data.name)}: there is no ledger {section.ledger_id}")
        first = section.entries[0].first_entry_id if section.entries else 0
        yield _FoundObjects(
            managed_ledger or ledger_objects.streaming_managed_ledger(section.info),
            section.ledger_id,
            LedgerPart(pair.data, pair.index, pair.key.uuid, first, sizes[section.ledger_id]),
            streaming=True,
            complete=pair.data.length_bytes >= index.data_object_length,
            entries=section.info.entries or None,
            payload_bytes=max(0, section.info.size or 0),
        )


def _look_at_single(storage: ChunkStorage, pair: _Pair, reading: Reading, look: _Look, managed_ledger: str) -> _Look:
    assert reading.magic is not None
    assert pair.key.ledger_id is not None
    laid = ledger_objects.first_form_layout(storage, pair.data, reading.magic, Deviations())
    if laid is None:
        why = "not offloaded: a data object without its index, and none of the first form"
        look.left_out.append(LeftOut(pair.data.name, why))
        return look
    part = LedgerPart(pair.data, None, pair.key.uuid, 0, pair.data.length_bytes)
    named = managed_ledger or laid.managed_ledger
    size = max(0, laid.payload_bytes or 0)
    attempt = _FoundObjects(
        named, pair.key.ledger_id, part, streaming=False, complete=True, entries=laid.entries, payload_bytes=size
    )
    look.ledgers.append(attempt)
    return look


def _add(plan: AdoptionPlan, name: str, candidates: list[_FoundObjects]) -> None:
    """Plan one ledger from all its candidates: of the complete attempts one with the most entries, of these the newest.

    Pulsar offloads a ledger again under another UUID if it could not record the first attempt (ManagedLedgerImpl,
    completeLedgerInfoForOffloaded), and deletes the objects of that one then or at some later time.
    """
    ordered = sorted(candidates, key=lambda attempt: attempt.age, reverse=True)
    whole = [attempt for attempt in ordered if not attempt.streaming]
    if whole:
        chains = [[attempt] for attempt in whole]
        differ = next((each for each in whole if each.complete and each.content != whole[0].content), None)
        if differ is not None and whole[0].complete:
            best, other = printable(whole[0].part.data.name), printable(differ.part.data.name)
            plan.warnings.append(
                f"{printable(name)} was offloaded twice, and the indexes differ: {best} has "
                f"{count(whole[0].entries or 0, 'entry')}, {other} has {count(differ.entries or 0, 'entry')}"
            )
    else:
        chains = [_chain(ordered), _chain(ordered[::-1])]
    first, *others = (_attempt(name, chain) for chain in chains)
    plan.add(replace(first, others=tuple(other for other in others if other != first)), name)
    plan.left_out.extend(left_out(first, [attempt.part.data.name for attempt in ordered]))


def _chain(ordered: Iterable[_FoundObjects]) -> list[_FoundObjects]:
    """Return the objects of a ledger in the streaming form: of those with the same beginning the first one."""
    parts: dict[int, _FoundObjects] = {}
    for attempt in ordered:
        parts.setdefault(attempt.part.first_entry_id, attempt)
    return [parts[first] for first in sorted(parts)]


def _attempt(name: str, chosen: Sequence[_FoundObjects]) -> LedgerPlan:
    entries = max((attempt.entries for attempt in chosen if attempt.entries is not None), default=None)
    size = max(attempt.payload_bytes for attempt in chosen)
    return LedgerPlan(name, chosen[0].ledger_id, tuple(attempt.part for attempt in chosen), entries, size)


def left_out(chosen: LedgerPlan, names_of: Iterable[str]) -> Iterator[LeftOut]:
    """Yield the data objects of a ledger that are not those of the attempt that is chosen."""
    taken = {part.data.name for part in chosen.parts}
    return (LeftOut(name, OTHER_ATTEMPT) for name in dict.fromkeys(names_of) if name not in taken)
