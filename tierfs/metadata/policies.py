"""Policies in the database, and cold locations: the store's own and foreign ones, whose objects were adopted.

A policy is set on a directory or segment; a segment inherits from its directories up to the root.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from tierfs import names, policy
from tierfs.errors import InvalidRequest
from tierfs.metadata import changes, directories, tables
from tierfs.metadata.directories import Entry
from tierfs.metadata.records import LocationRecord, PolicyRecord, SegmentRecord, require
from tierfs.metadata.tables import DIRECTORIES, LOCATIONS, OBJECTS, POLICIES, SEGMENTS
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.policy import Policy, inherit, retention_conflict
from tierfs.types import DirectoryId, EntryKind, LocationId


@dataclass(frozen=True, slots=True)
class Level:
    """The settings of one directory or segment."""

    name: str
    kind: EntryKind
    settings: Mapping[str, str]


def effective(txn: ReadTransaction, segment: SegmentRecord) -> Policy:
    """Return the policy in force for a segment: its own settings, then its directories' up to the root."""
    nearest_first = (segment.id, *_directories_above(txn, segment.parent_id))
    return inherit([_settings(txn, target_id) for target_id in reversed(nearest_first)])


def of_directory(txn: ReadTransaction, directory_id: DirectoryId) -> Policy:
    """Return the policy in force for settings that a directory's segments do not set themselves."""
    return inherit([_settings(txn, above) for above in reversed(list(_directories_above(txn, directory_id)))])


class Effective:
    """The policies in force for many segments of one transaction: a directory's settings are read once."""

    def __init__(self, txn: ReadTransaction) -> None:
        self._txn = txn
        self._inherited: dict[DirectoryId, Policy] = {}

    def of(self, segment: SegmentRecord) -> Policy:
        """Return the policy in force for a segment, as `effective`."""
        if _settings(self._txn, segment.id):
            return effective(self._txn, segment)
        inherited = self._inherited.get(segment.parent_id)
        if inherited is None:
            inherited = self._inherited[segment.parent_id] = of_directory(self._txn, segment.parent_id)
        return inherited


class PolicyCache:
    """Policies of directories, remembered as long as nothing is committed. One thread at a time."""

    def __init__(self) -> None:
        self._transaction_id = -1
        self._by_directory: dict[DirectoryId, Policy] = {}

    def effective(self, txn: ReadTransaction, segment: SegmentRecord) -> Policy:
        """Return the policy in force for a segment, as `effective`, for most segments at the cost of one get."""
        if txn.get_raw(POLICIES.name, tables.u64(segment.id)) is not None:
            return effective(txn, segment)
        if txn.id != self._transaction_id:
            self._transaction_id = txn.id
            self._by_directory.clear()
        inherited = self._by_directory.get(segment.parent_id)
        if inherited is None:
            inherited = self._by_directory[segment.parent_id] = of_directory(txn, segment.parent_id)
        return inherited


def levels(txn: ReadTransaction, path: str) -> Iterator[Level]:
    """Yield the settings of a directory or segment and of all directories above it, the root's first.

    Raises NotFound or NotDirectory.
    """
    parts = names.split(path)
    for depth in range(len(parts) + 1):
        name = names.join(parts[:depth])
        entry = directories.must_find(txn, name)
        yield Level(name, entry.kind, _settings(txn, entry.id))


def change(
    txn: WriteTransaction, path: str, *, put_settings: Mapping[str, str], unset: Collection[str] = ()
) -> Mapping[str, str]:
    """Change some settings of a directory or segment, leaving the others; return the settings before.

    Writes nothing where nothing changes. Raises NotFound, NotDirectory or InvalidRequest: also when bytes anywhere at
    or below `path` would be deleted before they are due to be offloaded.
    """
    entry = directories.must_find(txn, path)
    before = _settings(txn, entry.id)
    kept = {key: value for key, value in before.items() if key not in unset}
    after = {**kept, **put_settings}
    if after != before:
        put(txn, entry.id, after)
        _check_below(txn, entry)
    return before


def put(txn: WriteTransaction, target_id: int, settings: Mapping[str, str]) -> None:
    """Replace the settings of a directory or segment."""
    inherit([settings])
    old = txn.get(POLICIES, tables.u64(target_id)) or PolicyRecord(target_id=target_id)
    record = replace(old, settings=dict(settings))
    txn.put(POLICIES, tables.u64(target_id), record)
    from tierfs.metadata import changes

    changes.policy_changed(txn, record)
    is_segment = txn.get_raw(SEGMENTS.name, tables.u64(target_id)) is not None
    txn.touch(segment_id=target_id if is_segment else 0, policies=True)


def inherit_from(txn: WriteTransaction, target_id: int, other_id: int) -> None:
    """Copy the settings that are set on another segment itself."""
    settings = _settings(txn, other_id)
    if settings:
        put(txn, target_id, settings)


def _check_below(txn: ReadTransaction, entry: Entry) -> None:
    """Raise InvalidRequest where a policy in force at an entry, or at a setting below it, contradicts itself."""
    for _, record in txn.scan(POLICIES):
        place = _place_of(txn, record.target_id)
        if place is None:
            continue
        parent_id, name = place
        path = directories.path_of(txn, parent_id, name) if parent_id else ""
        if names.is_removed(path):
            continue  # what is in the trash has another policy once it is restored
        above = list(_directories_above(txn, parent_id))
        if entry.id != record.target_id and entry.id not in above:
            continue
        in_force = inherit([_settings(txn, target_id) for target_id in (*reversed(above), record.target_id)])
        conflict = retention_conflict(in_force)
        if conflict is not None:
            offload, retention = (f"{key} {policy.format(key, policy.value_of(in_force, key))}" for key in conflict)
            raise InvalidRequest(
                f"policy of {names.printable(path) or '/'}: {retention} would delete before {offload} offloads",
                remedy=f"set {conflict[0]} below {conflict[1]} there",
            )


def _place_of(txn: ReadTransaction, target_id: int) -> tuple[DirectoryId, str] | None:
    """Return parent and name of a directory or segment; no parent for the root, None when it is gone."""
    record = txn.get(DIRECTORIES, tables.u64(target_id)) or txn.get(SEGMENTS, tables.u64(target_id))
    return None if record is None else (record.parent_id, record.name)


def _directories_above(txn: ReadTransaction, parent_id: DirectoryId) -> Iterator[DirectoryId]:
    """Yield a directory and its ancestors up to the root; nothing for no directory."""
    while parent_id:
        yield parent_id
        parent_id = directories.directory(txn, parent_id).parent_id


def _settings(txn: ReadTransaction, target_id: int) -> Mapping[str, str]:
    record = txn.get(POLICIES, tables.u64(target_id))
    return {} if record is None else record.settings


def location(txn: ReadTransaction, location_id: LocationId) -> LocationRecord:
    """Return the location with this id; raises NotFound."""
    return txn.must_get(LOCATIONS, tables.u32(location_id), f"location {location_id}")


def same_place(place: LocationRecord, other: LocationRecord) -> bool:
    """Return whether both are the same URL of the same server."""
    return (place.url, place.endpoint_url) == (other.url, other.endpoint_url)


def foreign_at(txn: ReadTransaction, wanted: LocationRecord) -> LocationRecord | None:
    """Return the record of a foreign location, or None."""
    foreign = (record for _, record in txn.scan(LOCATIONS) if not record.writable)
    return next((record for record in foreign if same_place(record, wanted)), None)


def register_foreign(txn: WriteTransaction, wanted: LocationRecord) -> LocationRecord:
    """Return the record of a foreign location, made when there is none; `wanted` has no id yet.

    One record per URL and server. Region and profile are those given last. A location named by this command is allowed
    on this host, even if only a journal knew it before.
    """
    require(not wanted.writable, "a foreign location that may be written", wanted.url)
    known_record = foreign_at(txn, wanted)
    if known_record is None:
        newest = max((record.id for _, record in txn.scan(LOCATIONS)), default=0)
        new = replace(wanted, id=LocationId(newest + 1))
    else:
        new = replace(known_record, region=wanted.region, profile=wanted.profile, from_journal=False)
    if new != known_record:
        txn.put(LOCATIONS, tables.u32(new.id), new)
        changes.location_changed(txn, new)
    return new


def foreign_names_below(txn: ReadTransaction, place: LocationRecord) -> set[str]:
    """Return names, relative to `place`, of adopted objects that lie below its URL.

    Servers are not compared: one has many names, and a false match only keeps an object.
    """
    urls = {record.id: record.url for _, record in txn.scan(LOCATIONS) if not record.writable}
    if not urls:
        return set()
    base = f"{place.url}/"
    adopted = (
        f"{urls[holder.location_id]}/{holder.name}"
        for _, holder in txn.scan(OBJECTS)
        if holder.foreign and holder.location_id in urls
    )
    return {name[len(base) :] for name in adopted if name.startswith(base)}
