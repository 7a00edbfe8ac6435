"""Pages of a store's names, ledgers and policies: each costs what it shows, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Generic, TypeVar

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options import policy
from tierfs.base.words import names
from tierfs.base.words.types import SegmentId, SegmentKind
from tierfs.engine.metadata import directories, tables
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.tables import DIRECTORIES, ENTRIES, LEDGERS, POLICIES, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments import ledgers, positions, stat
from tierfs.engine.segments.ledgers import LedgerDescription
from tierfs.engine.segments.stat import Listed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some rows of a longer list, in its order."""

    rows: Sequence[T]
    next: str | None = None
    """The place that the next page begins after; None for the last one."""


@dataclass(frozen=True, slots=True)
class PolicyPlace:
    """A directory or segment that sets policies itself."""

    path: str
    settings: Mapping[str, str]
    """As `tierfs config` writes them."""


def page_of(rows: Iterator[T], most: int, key: Callable[[T], str]) -> Page[T]:
    """Return the first rows, and whether others follow."""
    shown = list(islice(rows, most))
    more = len(shown) == most and next(rows, None) is not None
    return Page(shown, key(shown[-1]) if more else None)


def directory_page(txn: ReadTransaction, path: str, after: str, most: int) -> Page[Listed]:
    """Return entries of a directory after a name; of a segment, itself. Raises NotFound."""
    return page_of(stat.listing(txn, path, after=after), most, lambda item: item.name)


def ledger_page(txn: ReadTransaction, after: int, most: int, *, held: bool) -> Page[LedgerDescription]:
    """Return ledgers in the order of their creation, after a segment's id: those that have entries or were closed."""
    in_progress = positions.being_offloaded(txn, held=held)
    living = _living_ledgers(txn, after)
    page = page_of(living, most, lambda row: str(row[1].id))
    return Page([ledgers.described(txn, name, record, in_progress) for name, record in page.rows], page.next)


def policy_page(txn: ReadTransaction, after: int, most: int) -> Page[PolicyPlace]:
    """Return the places that set policies, in the order of their ids, after one."""
    rows = (
        (
            record.target_id,
            PolicyPlace(path, {key: _formatted(key, text) for key, text in sorted(record.settings.items())}),
        )
        for _, record in txn.scan(POLICIES, tables.u64(after + 1))
        if record.settings and (path := _path_of(txn, record.target_id)) is not None
    )
    page = page_of(rows, most, lambda row: str(row[0]))
    return Page([place for _, place in page.rows], page.next)


def _formatted(key: str, stored: str) -> str:
    return policy.format(key, policy.from_stored(key, stored))


def _path_of(txn: ReadTransaction, target_id: int) -> str | None:
    """Return the name of a directory or segment that is not in the trash; None otherwise."""
    key = tables.u64(target_id)
    segment = txn.get(SEGMENTS, key)
    if segment is not None:
        path = directories.full_name(txn, segment)
    else:
        directory = txn.get(DIRECTORIES, key)
        if directory is None:
            return None
        path = directories.path_of(txn, directory.parent_id, directory.name) if directory.name else ""
    return None if names.is_removed(path) else path


def _living_ledgers(txn: ReadTransaction, after: int) -> Iterator[tuple[str, SegmentRecord]]:
    for segment_id in _ids_of_ledgers(txn, after):
        segment = directories.segment(txn, SegmentId(segment_id))
        if segment is None or segment.kind is not SegmentKind.LEDGER:
            continue
        name = directories.full_name(txn, segment)
        if not names.is_removed(name):
            yield name, segment


def _ids_of_ledgers(txn: ReadTransaction, after: int) -> Iterator[int]:
    """Yield the ids of segments with rows of entries or of a ledger: a seek for each, however many rows it has."""
    while True:
        start = tables.u64(after + 1)
        nearest = (next(txn.scan_raw(name, start), None) for name in (ENTRIES.name, LEDGERS.name))
        following = [tables.read_u64(row[0]) for row in nearest if row is not None]
        if not following:
            return
        after = min(following)
        yield after
