"""The check of the link to the cold tier, by reads of the store's own cold objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, islice, takewhile

from tierfs.app.store import Store
from tierfs.chunkstore.link_limit import LinkLimit, LinkMeasurement, described
from tierfs.chunkstore.link_probe import ReadRange, measure_link
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.doctor.findings import DoctorFinding, ok, warn
from tierfs.metadata.tables import OBJECTS
from tierfs.types import MIB, LocationId, Tier

LINK = "link"

_MOST_BYTES = 32 * MIB
"""Little enough for each run of `doctor`, where transfers cost money; the help of --link names it."""

_MOST_RECORDS = 100_000
"""Of those looked at to find large cold objects: under a second."""


def check_link(store: Store, location_id: LocationId, storage: ChunkStorage) -> Iterator[DoctorFinding]:
    """Measure the link by cold objects of the location. Raises what the storage raises."""
    ranges = cold_ranges(store, location_id, _MOST_BYTES)
    if not ranges:
        yield ok(LINK, "not measured: the store has no cold object to read")
        return
    yield judged(measure_link(storage, ranges, most_streams=store.settings.read.streams, most_bytes=_MOST_BYTES))


def judged(found: LinkMeasurement) -> DoctorFinding:
    """Judge a measurement: only a setting that is too low can be mended here."""
    finding = ok(LINK, described(found))
    if found.rates is not None and found.limit is LinkLimit.STREAMS_SETTING:
        wanted = f"TIERFS_READ__STREAMS={found.rates.link_streams}"
        finding = warn(LINK, described(found), f"export {wanted}, or set it in store.toml, as far as memory allows")
    return replace(finding, figures=found.data())


def cold_ranges(store: Store, location_id: LocationId, enough_bytes: int) -> list[ReadRange]:
    """Return whole objects of the location, the largest first, of about so many bytes; none of other programs'."""
    with store.metadata.read() as txn:
        found = [
            ReadRange(record.name, 0, record.stored_bytes)
            for _, record in islice(txn.scan(OBJECTS), _MOST_RECORDS)
            if record.tier is Tier.COLD
            and record.location_id == location_id
            and not record.foreign
            and record.stored_bytes
        ]
    found.sort(key=lambda one: one.length_bytes, reverse=True)
    before = accumulate((one.length_bytes for one in found), initial=0)
    return [one for one, _ in zip(found, takewhile(lambda sum_bytes: sum_bytes < enough_bytes, before), strict=False)]
