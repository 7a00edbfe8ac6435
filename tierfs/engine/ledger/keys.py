"""Names and user metadata of a ledger's two objects, for those that are written. Pure.

`names.ledger_key` parses the names of a listing.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from urllib.parse import quote
from uuid import UUID

import tierfs
from tierfs.base.words import names
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.names import cut, printable
from tierfs.base.words.types import MAX_METADATA_BYTES

# Version of both forms of data and index objects; their magic words tell them apart.
FORMAT_VERSION = "1"

VERSION_KEY = "s3managedledgeroffloaderformatversion"
SOFTWARE_VERSION_KEY = "s3managedledgeroffloadersoftwareversion"
SOFTWARE_COMMIT_KEY = "s3managedledgeroffloadersoftwaregitsha"
ROLE_KEY = "role"
MANAGED_LEDGER_KEY = "managedledgername"
CLUSTER_KEY = "pulsarclustername"
# Of tierfs alone: the ledger's path, base64url.
NAME_KEY = "name"

# Of objects whose entries were transformed on their way out: the transform's name.
TRANSFORM_KEY = "tierfs-transform"

# Keys by which readers recognise an object and its format, or that it was transformed.
_OWN_KEYS = (VERSION_KEY, SOFTWARE_VERSION_KEY, SOFTWARE_COMMIT_KEY, ROLE_KEY, NAME_KEY, TRANSFORM_KEY)
_NO_KEY_CHARACTER = re.compile(r"[^a-z0-9.-]")

# Begins the software version of objects that tierfs wrote.
_SOFTWARE = "tierfs "
# Characters of a managed ledger's name that metadata keep; others are percent-encoded.
_AS_IT_IS = "".join(map(chr, range(0x21, 0x7F)))
# Room for a managed ledger's name that is still worth something to a person. A guess.
_LEAST_NAME_BYTES = 177

_LEDGER = "-ledger-"
_INDEX = "-index"


class Role(StrEnum):
    """One of a ledger's two objects."""

    DATA = "data"
    INDEX = "index"


def data_key(uuid: UUID, ledger_id: int) -> str:
    """Return the name of the data object of one attempt at a ledger."""
    return f"{uuid}{_LEDGER}{ledger_id}"


def index_key(uuid: UUID, ledger_id: int) -> str:
    """Return the name of its index object."""
    return data_key(uuid, ledger_id) + _INDEX


def user_metadata(
    role: Role, managed_ledger: str, software_version: str, software_commit: str, cluster: str | None = None
) -> dict[str, str]:
    """Return the user metadata of an object. Raises InvalidRequest for text that a header cannot carry.

    Objects of the streaming form have neither the role nor the managed ledger.
    """
    values = {
        VERSION_KEY: FORMAT_VERSION,
        ROLE_KEY: role.value,
        MANAGED_LEDGER_KEY: managed_ledger,
        SOFTWARE_VERSION_KEY: software_version,
        SOFTWARE_COMMIT_KEY: software_commit,
    }
    if cluster is not None:
        values[CLUSTER_KEY] = cluster
    for key, value in values.items():
        if not (value.isascii() and value.isprintable()):
            raise InvalidRequest(f"{key} cannot be {printable(value)}: it must be printable ASCII")
    return values


def extra_metadata(extra: Mapping[str, str]) -> dict[str, str]:
    """Return what a user adds to an object's metadata in the form that headers carry and S3 gives back.

    Keys lose their capitals, as in S3 (`ManagedLedgerName` is `managedledgername`), and other characters than letters,
    digits, `.` and `-` become `-`; values are percent-encoded where they are not printable ASCII. Raises
    InvalidRequest for keys that become one, and for those that say what the object is.
    """
    metadata: dict[str, str] = {}
    for key, value in extra.items():
        name = _NO_KEY_CHARACTER.sub("-", key.lower()).strip("-.")
        if not name or name in metadata or name in _OWN_KEYS:
            raise InvalidRequest(f"metadata key {printable(key)!r} cannot be added", remedy="choose another key")
        metadata[name] = quote(value.strip(), safe=f" {_AS_IT_IS}")
    return metadata


def tierfs_metadata(role: Role, path: str, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the user metadata of an object that tierfs writes for the ledger at `path`: Pulsar's, and the path itself.

    Pulsar's name of the managed ledger is percent-encoded ASCII, as Pulsar does with topics, and cut where not all
    would fit into the headers of a request: nothing needs it, as `path` comes back from the name that tierfs reads.
    Raises InvalidRequest when `extra` leaves no room.
    """
    name = encoded_path(path)
    software_version = f"{_SOFTWARE}{tierfs.__version__}"
    # As for the longer role, so that both objects of a ledger have one name.
    metadata = {**user_metadata(Role.INDEX, "", software_version, "none"), **extra, NAME_KEY: name}
    room = MAX_METADATA_BYTES - sum(len(key) + len(value) for key, value in metadata.items())
    if room < _LEAST_NAME_BYTES:
        excess = _LEAST_NAME_BYTES - room
        raise InvalidRequest(f"the extra metadata are {excess} bytes too long for an object's headers")
    managed_ledger = quote(path.rpartition("/")[0], safe=_AS_IT_IS)
    if len(managed_ledger) > room:
        managed_ledger = cut(managed_ledger, room)
    return {**metadata, MANAGED_LEDGER_KEY: managed_ledger, ROLE_KEY: role.value}


def encoded_path(path: str) -> str:
    """Return a ledger's path as user metadata hold it; see path_of."""
    return base64.urlsafe_b64encode(path.encode()).decode("ascii")


def path_of(metadata: Mapping[str, str]) -> str:
    """Return the ledger's path in metadata that tierfs wrote. Raises DataLoss unless it is one."""
    try:
        return names.join(names.split(base64.urlsafe_b64decode(metadata.get(NAME_KEY, "")).decode()))
    except (ValueError, InvalidRequest) as exc:
        raise DataLoss(f"its name cannot be decoded: {exc}") from exc


def managed_ledger(metadata: Mapping[str, str]) -> str:
    """Return the name of the managed ledger in an object's metadata, as its writer knew it; "" if it is not there."""
    if metadata.get(SOFTWARE_VERSION_KEY, "").startswith(_SOFTWARE):
        with suppress(DataLoss):  # damaged by a copy, most likely: Pulsar's name is as good as for Pulsar's objects
            return path_of(metadata).rpartition("/")[0] or metadata.get(MANAGED_LEDGER_KEY, "")
    return metadata.get(MANAGED_LEDGER_KEY, "")


def check_version(metadata: Mapping[str, str], name: str) -> None:
    """Raise DataLoss naming the object and its version unless it has a version that this code reads."""
    version = {key.lower(): value for key, value in metadata.items()}.get(VERSION_KEY)
    if version is None:
        raise DataLoss(f"{printable(name)} has no format version: it was not written by an offloader of ledgers")
    if version != FORMAT_VERSION:
        raise DataLoss(
            f"{printable(name)} has format version {printable(version)}, this tierfs reads {FORMAT_VERSION}",
            remedy="upgrade tierfs",
        )
