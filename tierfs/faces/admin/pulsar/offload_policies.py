"""Offload policies of Pulsar (OffloadPoliciesImpl) as policies of tierfs: what each of their fields means here.

Four fields are policies. Others name the place to which the store offloads, and have to be those of this store. A field
that means nothing here is refused, unless it has the value with which Pulsar's client fills it in by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

from tierfs.app.setup import theirs
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options import policy
from tierfs.base.options.policy import OFF, Value
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import MIB, ReadPriority
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.segments import pulsar_info

SIZE = "managedLedgerOffloadThresholdInBytes"
TIME = "managedLedgerOffloadThresholdInSeconds"
LAG = "managedLedgerOffloadDeletionLagInMillis"
PRIORITY = "managedLedgerOffloadedReadPriority"

# The fields that are policies, and which.
POLICY = {name: theirs.table()[name.lower()].ours for name in (SIZE, TIME, LAG, PRIORITY)}

_DRIVER = "managedLedgerOffloadDriver"
_BLOCK_BYTES = "managedLedgerOffloadMaxBlockSizeInBytes"
_BLOCKS = "MaxBlockSizeInBytes"
_BUCKET = "managedLedgerOffloadBucket"
_FILE_URI = "fileSystemURI"
_FILE_SYSTEM = "filesystem"
_SYNONYMS = {"s3": "aws-s3"}  # Pulsar's isS3Driver
# Fields of all drivers, and of one alone.
_PREFIXES = {
    "managedLedgerOffload": "",
    "s3ManagedLedgerOffload": "aws-s3",
    "gcsManagedLedgerOffload": "google-cloud-storage",
}
_CLIENT_BLOCK_BYTES = 64 * MIB
_CLIENT_GCS_BLOCK_BYTES = 128 * MIB

# What OffloadPoliciesImpl has, and pulsar-admin sends, where nobody said anything.
_UNSAID: Mapping[str, Any] = {
    "offloadersDirectory": "./offloaders",
    "managedLedgerOffloadMaxThreads": 2,
    "managedLedgerOffloadReadThreads": 2,
    "managedLedgerOffloadPrefetchRounds": 1,
    "managedLedgerExtraConfigurations": {},
    "s3ManagedLedgerOffloadRoleSessionName": "pulsar-s3-offload",
    "s3ManagedLedgerOffloadMaxBlockSizeInBytes": _CLIENT_BLOCK_BYTES,
    "gcsManagedLedgerOffloadMaxBlockSizeInBytes": _CLIENT_GCS_BLOCK_BYTES,
    **{f"{prefix}ReadBufferSizeInBytes": MIB for prefix in _PREFIXES},
}

# What Pulsar's client derives of the driver and sends too.
_DERIVED = ("s3Driver", "gcsDriver", "fileSystemDriver")

_MS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class OffloadPlace:
    """The place to which a store offloads, as Pulsar's fields name it."""

    driver: str
    fields: Mapping[str, str | int]
    """Values by field, without those that the store does not say."""

    @classmethod
    def of(cls, location: LocationRecord | None, block_bytes: int) -> OffloadPlace:
        """Return the place of a store; None: it has no cold tier."""
        if location is None:
            return cls("", {})
        driver, properties = pulsar_info.driver_of(location)
        if not properties:
            return cls(_FILE_SYSTEM, {_DRIVER: _FILE_SYSTEM, _FILE_URI: location.url})
        said: dict[str, str | int] = {
            "Bucket": properties["bucket"],
            "Region": properties["region"],
            "ServiceEndpoint": properties["serviceEndpoint"],
            "MaxBlockSizeInBytes": block_bytes,
        }
        prefixes = [prefix for prefix, of in _PREFIXES.items() if of in ("", driver)]
        fields = {prefix + name: value for prefix in prefixes for name, value in said.items() if value}
        return cls(driver, {_DRIVER: driver, **fields})


def wanted(given: Mapping[str, Any], place: OffloadPlace) -> dict[str, str]:
    """Return the policies, in their stored form, that OffloadPolicies set.

    Raises InvalidRequest for a field that says another place than the store's, or what tierfs has no meaning for.
    """
    said = {name: value for name, value in given.items() if value is not None and name not in _DERIVED}
    for name, value in said.items():
        if name not in POLICY and not _is_said_in_vain(name, value, place):
            _refuse(name, value, place)
    return {POLICY[name]: stored(name, value) for name, value in said.items() if name in POLICY}


def stored(name: str, value: Any) -> str:
    """Return a policy's stored form from its field. Raises InvalidRequest for a value that it does not take."""
    key = POLICY[name]
    if name == PRIORITY:
        return policy.parse(key, value if isinstance(value, str) else repr(value))
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidRequest(f"{name} is not a whole number")
    if value < 0:
        return OFF
    if name == LAG and value % _MS_PER_S:
        # Rounded, another value would be read back than was set.
        raise InvalidRequest(f"{name} is not in whole seconds: {value} ms", remedy="use a multiple of 1000")
    return policy.parse(key, str(value // _MS_PER_S if name == LAG else value))


def field(name: str, value: Value) -> int | str:
    """Return a policy as its field has it; what is off is -1.

    PIP-17's proposal of read priorities has four, Pulsar's client knows the two that fall back, and shows none for
    the others.
    """
    if isinstance(value, ReadPriority):
        theirs_name = value.replace("local", "bookkeeper").replace("offloaded", "tiered-storage")
        return theirs_name.upper().replace("-", "_")
    if value is None:
        return -1
    assert isinstance(value, int)
    return value * _MS_PER_S if name == LAG else value


def fields(values: Mapping[str, Value], place: OffloadPlace) -> dict[str, Any] | None:
    """Return policies by key, and the place, as OffloadPolicies; None where none of the policies is among them."""
    held = {name: field(name, values[key]) for name, key in POLICY.items() if key in values}
    return {**place.fields, **held} if held else None


def unset(given: Collection[str]) -> list[str]:
    """Return the policies that OffloadPolicies do not set: Pulsar replaces all of them at once."""
    return [key for key in POLICY.values() if key not in given]


def _is_said_in_vain(name: str, value: Any, place: OffloadPlace) -> bool:
    """Return whether a field says nothing new: the store's own place, or what the client fills in."""
    if name in _UNSAID and value == _UNSAID[name]:
        return True
    mine = place.fields.get(name)
    if not isinstance(value, str) or (mine is not None and not isinstance(mine, str)):
        # pulsar-admin sends a size of blocks with every driver; a file system has none.
        has_none = place.driver == _FILE_SYSTEM and name == _BLOCK_BYTES and value == _CLIENT_BLOCK_BYTES
        return has_none or (mine is not None and value == mine)
    if mine is not None:
        if name == _FILE_URI:
            return _address(value) == _address(mine)
        given = _SYNONYMS.get(value.lower(), value.lower()) if name == _DRIVER else value.rstrip("/")
        return given == mine.rstrip("/")
    # The store may not record a region: the name of its bucket says it.
    prefix = name.removesuffix("Region")
    return prefix != name and _BUCKET in place.fields and _PREFIXES.get(prefix) in ("", place.driver)


def _address(url: str) -> tuple[str, str, str]:
    """Return the parts of a URL that name a place: file:/DIR, file:///DIR and file://localhost/DIR are one."""
    parts = urlsplit(url)
    host = "" if parts.scheme == "file" and parts.netloc == "localhost" else parts.netloc
    return parts.scheme, host, parts.path.rstrip("/")


def _refuse(name: str, value: Any, place: OffloadPlace) -> None:
    """Raise InvalidRequest that says why a field cannot be set. Values are not repeated where they may be secret."""
    row = theirs.table().get(name.lower())
    if row is None:
        raise InvalidRequest(f"unknown offload policy {name}", remedy="omit it")
    if not place.driver:
        raise InvalidRequest(f"{name} cannot be set: the store has no cold tier", remedy="tierfs config cold.url=URL")
    if name in place.fields:
        remedy = "a store offloads to one place: omit it, or use the value of the store"
        if name.endswith(_BLOCKS):
            # pulsar-admin sends 64 MiB where nobody gave a size, so leaving it out does not help.
            remedy = f"pulsar-admin sends a default size; use the store's: --maxBlockSize {place.fields[name]}"
        raise InvalidRequest(f"{name} is {place.fields[name]} in this store, not {value}", remedy=remedy)
    raise InvalidRequest(
        f"{name} cannot be set for a namespace or a topic of a store that offloads by {place.driver}",
        remedy=theirs.remedy(name),
    )
