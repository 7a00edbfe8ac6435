"""Names and user metadata of a ledger's two objects. Pure.

The parsers accept whatever Pulsar's accept; a listing passes them names chosen by other software.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from uuid import UUID

from tierfs.errors import DataLoss, InvalidRequest
from tierfs.names import printable

FORMAT_VERSION = "1"
"""Version of both forms of data and index objects; their magic words tell them apart."""

VERSION_KEY = "s3managedledgeroffloaderformatversion"
SOFTWARE_VERSION_KEY = "s3managedledgeroffloadersoftwareversion"
SOFTWARE_COMMIT_KEY = "s3managedledgeroffloadersoftwaregitsha"
ROLE_KEY = "role"
MANAGED_LEDGER_KEY = "managedledgername"
CLUSTER_KEY = "pulsarclustername"

_LEDGER = "-ledger-"
_INDEX = "-index"
_NUMBER = re.compile(r"[+-]?[0-9]{1,1024}")
"""As many digits as a key has room for: Java takes leading zeros."""
_MAX_ID = 2**63 - 1


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


def streaming_data_key(uuid: UUID) -> str:
    """Return the name of a data object of the streaming form, which holds several ledgers."""
    return str(uuid)


def streaming_index_key(uuid: UUID) -> str:
    """Return the name of its index object."""
    return f"{uuid}{_INDEX}"


def parse_ledger_id(name: str | None) -> int | None:
    """Return the ledger in the name of a data or index object; None when there is none."""
    _, separator, number = (name or "").removesuffix(_INDEX).partition(_LEDGER)
    if not separator or _NUMBER.fullmatch(number) is None:
        return None
    ledger_id = int(number)
    return ledger_id if -_MAX_ID - 1 <= ledger_id <= _MAX_ID else None


def parse_context_uuid(name: str | None, ledger_id: int | None) -> str | None:
    """Return the attempt in the name of this ledger's data or index object; None for any other name.

    Pulsar also accepts the names of ledgers whose number begins with this one's digits.
    """
    if name is None or ledger_id is None:
        return None
    before = name.removesuffix(_INDEX).removesuffix(f"{_LEDGER}{ledger_id}")
    return before if before and before != name.removesuffix(_INDEX) else None


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
