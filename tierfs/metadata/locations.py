"""Cold places: ours and those of others, whose objects were adopted."""

from __future__ import annotations

from dataclasses import replace

from tierfs.metadata import journal, keys
from tierfs.metadata.records import LocationRecord, require
from tierfs.metadata.tables import LOCATIONS, OBJECTS
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.types import LocationId


def location(txn: ReadTransaction, location_id: LocationId) -> LocationRecord:
    """The location with this id; raises NotFound."""
    return txn.must_get(LOCATIONS, keys.u32(location_id), f"location {location_id}")


def same_place(one: LocationRecord, other: LocationRecord) -> bool:
    """Whether both are reached at the same URL of the same server."""
    return (one.url, one.endpoint_url) == (other.url, other.endpoint_url)


def foreign_at(txn: ReadTransaction, wanted: LocationRecord) -> LocationRecord | None:
    """The record of a place of others, or None when there is none."""
    records = (record for _, record in txn.scan(LOCATIONS))
    return next((record for record in records if not record.writable and same_place(record, wanted)), None)


def register_foreign(txn: WriteTransaction, wanted: LocationRecord) -> LocationRecord:
    """The record of a place of others, made when there is none; `wanted` has no id yet.

    One record per URL and server. Region and profile are those given last. What is named here is allowed
    here, even if only a journal knew it before.
    """
    require(not wanted.writable, "a foreign location that may be written", wanted.url)
    found = foreign_at(txn, wanted)
    if found is None:
        newest = max((record.id for _, record in txn.scan(LOCATIONS)), default=0)
        new = replace(wanted, id=LocationId(newest + 1))
    else:
        new = replace(found, region=wanted.region, profile=wanted.profile, from_journal=False)
    if new != found:
        txn.put(LOCATIONS, keys.u32(new.id), new)
        journal.location_changed(txn, new)
    return new


def foreign_names_below(txn: ReadTransaction, place: LocationRecord) -> set[str]:
    """Names, relative to `place`, of adopted objects that lie below its URL.

    Servers are not compared: one has many names, and an object too many is only kept.
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
