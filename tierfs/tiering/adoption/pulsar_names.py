"""Names of Pulsar's objects, and of the segments that are made of its ledgers."""

from __future__ import annotations

from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import LedgerKey

INDEX_SUFFIX = "-index"

# The managed ledger of ledgers that do not name theirs.
UNKNOWN = "unknown"

# Of a component that was too long: 160 and its digest.
_CUT_BYTES = 177
_LEDGER_BYTES = 1 + len(names.of_ledger(0))


def parse_key(name: str) -> LedgerKey | None:
    """Parse an object's name after its last slash; None for any other name."""
    return names.ledger_key(name.rpartition("/")[2])


def ledger_name(into: str, managed_ledger: str, ledger_id: int) -> str:
    """Return the segment name of a ledger.

    Impossible names are changed deterministically: a forbidden character, and the dots of `.` and `..`, become the
    percent-encoding of their UTF-8; a component of more than 255 bytes, or a managed ledger that is too long as a
    whole, ends in `~` and 16 digits of its SHA-256; empty components are left out.
    """
    parts = tuple(_component(part) for part in managed_ledger.split("/") if part) or (UNKNOWN,)
    managed = names.join(parts)
    room = names.MAX_NAME_BYTES - len(into.encode()) - 1 - _LEDGER_BYTES
    if len(managed.encode()) > room:
        managed = names.cut(managed.replace("/", "%2F"), _CUT_BYTES)
    return names.join(tuple(part for part in (*into.split("/"), managed, names.of_ledger(ledger_id)) if part))


def _component(part: str) -> str:
    if part in (".", "..", names.CONTROL_NAME) or names.is_removed(part):
        part = part.replace(".", "%2E", 2 if part == ".." else 1)
    accepted = "".join(map(_accepted, part))
    return names.cut(accepted, _CUT_BYTES) if len(accepted.encode()) > names.MAX_COMPONENT_BYTES else accepted


def _accepted(character: str) -> str:
    try:
        names.check_component(f"a{character}")
    except InvalidRequest:
        return "".join(f"%{byte:02X}" for byte in character.encode(errors="surrogatepass"))
    return character
