"""The place of a store's cold tier, when it has another address: proved to be the store's before it is recorded.

The objects stay as they are: a server that moved, a bucket or directory copied by other means, a NAS mounted elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tierfs.config import ColdSettings
from tierfs.errors import InvalidRequest, NotFound
from tierfs.journal import cold_identity
from tierfs.metadata import changes, tables
from tierfs.metadata.records import LocationRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import LOCATIONS
from tierfs.names import printable
from tierfs.setup.connect import FILE_SCHEME, connect_bare
from tierfs.setup.create import ColdChoice, locate, probed

KEYS = ("url", "endpoint_url", "region", "profile")
"""Parts of a place, by the names of the fields of its record. Empty text stands for the default."""

_S3_PREFIX = "s3://"


def of_store(metadata: MetadataStore) -> LocationRecord:
    """Return the place of a store's cold tier. Raises InvalidRequest for a store without one."""
    with metadata.read() as txn:
        location_id = txn.store.cold_location_id
        if not location_id:
            raise InvalidRequest("this store has no cold tier", remedy="make a store with one: tierfs init")
        return txn.must_get(LOCATIONS, tables.u32(location_id), f"location {location_id}")


def parts(place: LocationRecord | None) -> dict[str, str]:
    """Return the parts of a place by their names as settings, like `cold.url`; none for none."""
    return {} if place is None else {f"cold.{key}": getattr(place, key) for key in KEYS}


def lines(place: LocationRecord | None) -> list[str]:
    """Format the parts of a place as settings are shown."""
    return [f"{name} = {printable(value) or 'not set'}  (store)" for name, value in parts(place).items()]


def moved(place: LocationRecord, wanted: Mapping[str, str]) -> LocationRecord:
    """Return a place with other values of KEYS. Raises InvalidRequest for a URL that is none."""
    wanted = dict(wanted)
    url = wanted.pop("url", None)
    if url is None:
        return replace(place, **wanted)  # type: ignore[arg-type]
    if not url.startswith(_S3_PREFIX):
        directory = Path(url.removeprefix(FILE_SCHEME))
        if not directory.is_absolute():
            raise InvalidRequest(f"{printable(url)} is no place", remedy="write s3://BUCKET/PREFIX or a full path")
        return replace(place, url=f"{FILE_SCHEME}{directory}", **wanted)  # type: ignore[arg-type]
    located = locate(ColdChoice(bucket_url=url))
    assert located is not None
    return replace(place, url=located.url, **wanted)  # type: ignore[arg-type]


def change(metadata: MetadataStore, store: Path, settings: ColdSettings, wanted: Mapping[str, str]) -> LocationRecord:
    """Record another address of the cold tier; return it. Idempotent; nothing is changed when it raises.

    Raises WrongColdTier unless the store's mark and its newest slot of the journal are there, the errors of any request
    to it, NotFound for a directory that is missing, and Fenced in a store that may not change.
    """
    before = of_store(metadata)
    place = moved(before, wanted)
    if place == before:
        return place
    try:
        storage = connect_bare(place, store, settings)
    except NotFound as exc:
        raise NotFound(str(exc), remedy="mount it, or name where it is") from exc
    with closing(storage):
        with metadata.read() as txn:
            ours = txn.store
        cold_identity.examine(storage, ours)
        place = probed(place, storage)
    with metadata.write() as txn:
        txn.put(LOCATIONS, tables.u32(place.id), place)
        changes.location_changed(txn, place)
    return place
