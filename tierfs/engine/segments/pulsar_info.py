"""Ledgers as Pulsar's metadata store names them: the LedgerInfo with its OffloadContext that a broker reads one by.

Of a ledger that tierfs offloaded the driver and its properties are those of Pulsar's jclouds offloader for the place
where the cold tier is now, so that they hold after a move of the bucket too. Of an adopted one they stay as recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import EntryKind, SegmentId, SegmentKind
from tierfs.engine.ledger import metadata as pulsar
from tierfs.engine.metadata import directories, empty_ledgers, policies
from tierfs.engine.metadata.ledger_records import OUR_DRIVER, LedgerRecord
from tierfs.engine.metadata.records import LocationRecord, SegmentRecord
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments import positions

# Pulsar's driver for the scheme of a URL, and the name of that constant in its JCloudBlobStoreProvider, which
# TieredStorageConfiguration.getOffloadDriverMetadata writes beside bucket, region and endpoint. Its other offloader,
# for file systems, has another format.
_DRIVERS = {
    "s3": ("aws-s3", "AWS_S3"),
    "gs": ("google-cloud-storage", "GOOGLE_CLOUD_STORAGE"),
    "gcs": ("google-cloud-storage", "GOOGLE_CLOUD_STORAGE"),
    "abfs": ("azureblob", "AZURE_BLOB"),
    "abfss": ("azureblob", "AZURE_BLOB"),
    "az": ("azureblob", "AZURE_BLOB"),
}


def ledger_info(txn: ReadTransaction, segment: SegmentRecord) -> pulsar.LedgerInfo:
    """Return the LedgerInfo of a ledger; entries and size are absent while it is open, as in Pulsar."""
    return _info(txn, positions.member(txn, segment))


def managed_ledger_info(txn: ReadTransaction, path: str) -> pulsar.ManagedLedgerInfo:
    """Return the ManagedLedgerInfo of a managed ledger. Raises NotFound, InvalidRequest for a segment."""
    directory_id = positions.directory_of(txn, path)
    ledgers = positions.members(txn, directory_id)
    terminated = None
    if directories.directory(txn, directory_id).terminated and ledgers:
        # Without an entry it is LEDGER:-1, as ManagedLedgerImpl has it for a ledger that it has just made.
        last = next((member for member in reversed(ledgers) if member.entries), ledgers[-1])
        terminated = pulsar.NestedPosition(ledger_id=last.ledger_id, entry_id=last.entries - 1)
    return pulsar.ManagedLedgerInfo(ledgers=tuple(_info(txn, member) for member in ledgers), terminated=terminated)


def info_at(txn: ReadTransaction, path: str) -> pulsar.LedgerInfo | pulsar.ManagedLedgerInfo:
    """Return the LedgerInfo of a ledger, or the ManagedLedgerInfo of a directory. Raises NotFound, InvalidRequest."""
    entry = directories.must_find(txn, path, "ledger or managed ledger")
    if entry.kind is EntryKind.DIRECTORY:
        return managed_ledger_info(txn, path)
    segment = directories.segment_by_id(txn, SegmentId(entry.id))
    if segment.kind is not SegmentKind.LEDGER:
        raise InvalidRequest(f"{printable(path)} is not a ledger", remedy=f"see: tierfs info {printable(path)}")
    return ledger_info(txn, segment)


def why_not_read(txn: ReadTransaction, record: LedgerRecord) -> str | None:
    """Return why no broker reads an offloaded ledger where it is; None if one can, or for an adopted ledger."""
    location_id = txn.store.cold_location_id
    if record.offload.driver_name != OUR_DRIVER or not location_id:
        return None
    place = policies.location(txn, location_id)
    parts = urlsplit(place.url)
    if parts.scheme not in _DRIVERS:
        return f"Pulsar has no driver for {printable(place.url)}"
    return f"Pulsar reads only the root of a bucket, not {printable(parts.path)}" if parts.path.strip("/") else None


def _info(txn: ReadTransaction, member: positions.MemberLedger) -> pulsar.LedgerInfo:
    segment, known = member.segment, member.known
    if not segment.sealed:
        return pulsar.LedgerInfo(ledger_id=member.ledger_id, closed_ms=0)
    return pulsar.LedgerInfo(
        ledger_id=member.ledger_id,
        entries=member.entries,
        size=segment.length,
        closed_ms=known.timestamp_ms or segment.sealed_ms,
        offload=_context(txn, segment, known),
    )


def _context(txn: ReadTransaction, segment: SegmentRecord, known: LedgerRecord) -> pulsar.OffloadContext | None:
    offload = known.offload
    if offload.uuid is None:
        return None
    upper, lower = pulsar.split_uuid(offload.uuid)
    return pulsar.OffloadContext(
        uuid_upper=upper,
        uuid_lower=lower,
        complete=offload.complete,
        local_deleted=positions.is_local_deleted(segment, known),
        offloaded_ms=offload.timestamp_ms,
        driver=_driver(txn, known),
    )


def _driver(txn: ReadTransaction, known: LedgerRecord) -> pulsar.DriverMetadata | None:
    offload, location_id = known.offload, txn.store.cold_location_id
    name = offload.driver_name
    properties: Mapping[str, str] = empty_ledgers.foreign(offload.driver_properties)
    if name == OUR_DRIVER and location_id:
        name, properties = driver_of(policies.location(txn, location_id))
    if not name:
        return None
    pairs = tuple(pulsar.KeyValue(key=key, value=value) for key, value in properties.items())
    return pulsar.DriverMetadata(name=name, properties=pairs)


def driver_of(place: LocationRecord) -> tuple[str, Mapping[str, str]]:
    """Return the driver and what it records of a place; no properties for a place that none reads."""
    parts = urlsplit(place.url)
    name, constant = _DRIVERS.get(parts.scheme, (OUR_DRIVER, ""))
    if not constant:
        return name, {}
    bucket = parts.netloc.partition("@")[0]
    return name, {
        "managedLedgerOffloadDriver": constant,
        "bucket": bucket,
        "region": place.region,
        "serviceEndpoint": place.endpoint_url,
    }
