"""Policies in the database, and cold locations: the store's own and foreign ones, whose objects were adopted.

A policy is set on a directory or segment; a segment inherits from its directories up to the root.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from tierfs.base.options import contradictions, policy
from tierfs.base.options.policy import Policy
from tierfs.base.options.precedence import NO_COLD_TIER, Host, Level, Policies, PolicyOrigin, SetBy
from tierfs.base.words import names
from tierfs.base.words.names import printable
from tierfs.base.words.types import IN_PLACE, ROOT_DIRECTORY, DirectoryId, EntryKind, LocationId
from tierfs.engine.metadata import changes, directories, tables
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.records import DirectoryRecord, LocationRecord, PolicyRecord, SegmentRecord, require
from tierfs.engine.metadata.tables import DIRECTORIES, LOCATIONS, OBJECTS, POLICIES, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction

_S3_URL = "s3://"


def in_force(txn: ReadTransaction, segment: SegmentRecord) -> Policies:
    """Return the policies that hold for a segment: the host's, its own, its directories' up to the root."""
    return _below(txn, segment.parent_id, segment)


def effective(txn: ReadTransaction, segment: SegmentRecord) -> Policy:
    """Return their values."""
    return in_force(txn, segment).values


def of_directory(txn: ReadTransaction, directory_id: DirectoryId) -> Policies:
    """Return the policies that hold where a directory's segments set none themselves."""
    return _below(txn, directory_id, None)


def at(txn: ReadTransaction, path: str) -> Policies:
    """Return the policies that hold for a directory or a segment. Raises NotFound or NotDirectory."""
    entry = directories.must_find(txn, path)
    if entry.kind is EntryKind.DIRECTORY:
        return of_directory(txn, DirectoryId(entry.id))
    return in_force(txn, txn.must_get(SEGMENTS, tables.u64(entry.id), f"segment {names.printable(path)}"))


class PolicyCache:
    """The policies in force for many segments: a directory's are remembered as long as nothing is committed.

    One thread at a time.
    """

    def __init__(self) -> None:
        self._seen: tuple[int, Host] | None = None
        self._by_directory: dict[DirectoryId, Policies] = {}

    def of(self, txn: ReadTransaction, segment: SegmentRecord) -> Policies:
        """Return the policies in force for a segment, as `in_force`, for most segments at the cost of one get."""
        if txn.get_raw(POLICIES.name, tables.u64(segment.id)) is not None:
            return in_force(txn, segment)
        if self._seen != (txn.id, txn.host):
            self._seen = txn.id, txn.host
            self._by_directory.clear()
        inherited = self._by_directory.get(segment.parent_id)
        if inherited is None:
            inherited = self._by_directory[segment.parent_id] = of_directory(txn, segment.parent_id)
        return inherited


def _below(txn: ReadTransaction, parent_id: DirectoryId, segment: SegmentRecord | None) -> Policies:
    """Return the policies of a segment in a directory, or of the directory."""
    above = list(_directories_above(txn, parent_id))
    levels: list[Level] = []
    path = ""
    for directory in reversed(above):
        path = f"{path}/{directory.name}" if path else directory.name
        levels.append(Level(PolicyOrigin(SetBy.DIRECTORY, path), settings_of(txn, directory.id)))
    if segment is not None:
        own = PolicyOrigin(SetBy.SEGMENT, f"{path}/{segment.name}" if path else segment.name)
        levels.append(Level(own, settings_of(txn, segment.id)))
    levels.reverse()
    nothing_to_wait_for = () if txn.store.cold_location_id else (NO_COLD_TIER,)
    return Policies.of((*nothing_to_wait_for, *levels), txn.host)


def change(
    txn: WriteTransaction, path: str, *, put_settings: Mapping[str, str], unset: Collection[str] = ()
) -> Mapping[str, str]:
    """Change some settings of a directory or segment, leaving the others; return the settings before.

    Writes nothing where nothing changes. Raises NotFound, NotDirectory or InvalidRequest: also when bytes anywhere at
    or below `path` would be deleted before they are due to be offloaded.
    """
    entry = directories.must_find(txn, path)
    before = settings_of(txn, entry.id)
    kept = {key: value for key, value in before.items() if key not in unset}
    after = {**kept, **put_settings}
    if after != before:
        put(txn, entry.id, after)
        check_below(txn, entry)
    return before


def put(txn: WriteTransaction, target_id: int, settings: Mapping[str, str]) -> None:
    """Replace the settings of a directory or segment."""
    policy.check_stored(settings)
    old = txn.get(POLICIES, tables.u64(target_id)) or PolicyRecord(target_id=target_id)
    record = replace(old, settings=dict(settings))
    txn.put(POLICIES, tables.u64(target_id), record)
    from tierfs.engine.metadata import changes

    changes.changed(txn, POLICIES, record)
    is_segment = txn.get_raw(SEGMENTS.name, tables.u64(target_id)) is not None
    txn.touch(segment_id=target_id if is_segment else 0, policies=True)


def inherit_from(txn: WriteTransaction, target_id: int, other_id: int) -> None:
    """Copy the settings that are set on another segment itself."""
    settings = settings_of(txn, other_id)
    if settings:
        put(txn, target_id, settings)


def check_below(txn: ReadTransaction, entry: Entry) -> None:
    """Raise InvalidRequest where policies in force at an entry, or at a setting below it, contradict each other."""
    place = location(txn, txn.store.cold_location_id) if txn.store.cold_location_id else None
    for policies in _set_below(txn, entry.id):
        contradictions.refuse(policies)
        if place is not None:
            _refuse_in(txn, place, policies)


def require_supported(txn: ReadTransaction, place: LocationRecord) -> None:
    """Raise InvalidRequest where the policies of a store need what a place does not have.

    These are larger objects than it stores, and an archive.
    """
    _refuse_in(txn, place, of_directory(txn, ROOT_DIRECTORY))
    for policies in _set_below(txn, ROOT_DIRECTORY):
        _refuse_in(txn, place, policies)


def _refuse_in(txn: ReadTransaction, place: LocationRecord, policies: Policies) -> None:
    contradictions.refuse_larger(policies, place.max_object_bytes)
    if why := why_no_archive(txn, place, policies.values.archive_class):
        contradictions.refuse_archive(policies, why)


def has_classes(place: LocationRecord) -> bool:
    """Return whether a place has storage classes: only a bucket of S3 does."""
    return place.url.startswith(_S3_URL)


def why_no_archive(txn: ReadTransaction, place: LocationRecord, archive_class: str | None) -> str:
    """Return why no object of a place can move to a storage class, or to any for None; empty if it can."""
    from tierfs.engine.metadata import archive_place  # no command that only looks needs it

    if place.keeps_objects:
        return f"the key may not delete in {printable(place.url)}: each object would stay there in addition to its copy"
    has_archive = archive_class in (IN_PLACE, None) and archive_place.find(txn) is not None
    if archive_class == IN_PLACE:
        return "" if has_archive else "the store has no archive place, which archive.place=URL sets"
    if not has_archive and not has_classes(place):
        return f"{printable(place.url)} has no storage classes: only a bucket of S3 has"
    return ""


def _set_below(txn: ReadTransaction, entry_id: int) -> Iterator[Policies]:
    """Yield the policies in force at each place, at or below an entry, that sets some."""
    for _, record in txn.scan(POLICIES):
        key = tables.u64(record.target_id)
        segment, directory = txn.get(SEGMENTS, key), txn.get(DIRECTORIES, key)
        parent_id = segment.parent_id if segment is not None else DirectoryId(record.target_id)
        if segment is None and directory is None:
            continue
        path = directories.path_of(txn, parent_id, "" if segment is None else segment.name)
        if names.is_removed(path):
            continue  # what is in the trash has another policy once it is restored
        if entry_id == record.target_id or any(above.id == entry_id for above in _directories_above(txn, parent_id)):
            yield _below(txn, parent_id, segment)


def _directories_above(txn: ReadTransaction, parent_id: DirectoryId) -> Iterator[DirectoryRecord]:
    """Yield a directory and its ancestors up to the root."""
    while parent_id:
        directory = directories.directory(txn, parent_id)
        yield directory
        parent_id = directory.parent_id


def settings_of(txn: ReadTransaction, target_id: int) -> Mapping[str, str]:
    """Return the policies that are set on a directory or segment itself, in their stored form."""
    record = txn.get(POLICIES, tables.u64(target_id))
    return {} if record is None else record.settings


def location(txn: ReadTransaction, location_id: LocationId) -> LocationRecord:
    """Return the location with this id; raises NotFound."""
    return txn.must_get(LOCATIONS, tables.u32(location_id), f"location {location_id}")


def same_place(place: LocationRecord, other: LocationRecord) -> bool:
    """Return whether both are the same URL of the same server."""
    return (place.url, place.endpoint_url) == (other.url, other.endpoint_url)


def told(place: LocationRecord) -> str:
    """Name a place in one line."""
    return f"{printable(place.url)} at {place.endpoint_url}" if place.endpoint_url else printable(place.url)


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
        changes.put(txn, LOCATIONS, new)
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
        f"{urls[record.location_id]}/{record.name}"
        for _, record in txn.scan(OBJECTS)
        if record.foreign and record.location_id in urls
    )
    return {name[len(base) :] for name in adopted if name.startswith(base)}
