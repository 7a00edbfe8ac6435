"""Names in a place of Pulsar's offloader. Pure; every name is hostile.

{uuid}-ledger-{id}, {uuid}-ledger-{id}-index     the data and the index object of one attempt at a ledger
{uuid}, {uuid}-index                             those of the streaming form, with several ledgers

Pulsar writes them at the root of the bucket; what is in front of a last slash counts for nothing.
"""

from __future__ import annotations

from hashlib import sha256

from tierfs import names
from tierfs.errors import InvalidRequest
from tierfs.names import LedgerKey

INDEX_SUFFIX = "-index"

UNKNOWN = "unknown"
"""The managed ledger of ledgers that do not say theirs."""

_KEPT_BYTES = 160
"""Of a component that is too long."""
_DIGEST_DIGITS = 16
_LEDGER_BYTES = 1 + len(names.of_ledger(0))


def parse_key(name: str) -> LedgerKey | None:
    """What an object's name says behind its last slash; None for any other name."""
    return names.ledger_key(name.rpartition("/")[2])


def ledger_name(into: str, managed_ledger: str, ledger_id: int) -> str:
    """The segment of a ledger.

    What no name here can have is changed, always in the same way: a forbidden character, and the dots of `.` and `..`,
    become the percent-encoding of their UTF-8; a component of more than 255 bytes, or a managed ledger that is too
    long as a whole, ends in `~` and 16 digits of its SHA-256; empty components are left out.
    """
    parts = tuple(_component(part) for part in managed_ledger.split("/") if part) or (UNKNOWN,)
    managed = names.join(parts)
    room = names.MAX_NAME_BYTES - len(into.encode()) - 1 - _LEDGER_BYTES
    if len(managed.encode()) > room:
        managed = _cut(managed.replace("/", "%2F"))
    return names.join(tuple(part for part in (*into.split("/"), managed, names.of_ledger(ledger_id)) if part))


def _component(part: str) -> str:
    if part in (".", "..") or part.startswith(names.REMOVED_PREFIX):
        part = part.replace(".", "%2E", 2 if part == ".." else 1)
    accepted = "".join(map(_accepted, part))
    return _cut(accepted) if len(accepted.encode()) > names.MAX_COMPONENT_BYTES else accepted


def _accepted(character: str) -> str:
    try:
        names.check_component(f"a{character}")
    except InvalidRequest:
        return "".join(f"%{byte:02X}" for byte in character.encode(errors="surrogatepass"))
    return character


def _cut(text: str) -> str:
    kept = text.encode()[:_KEPT_BYTES].decode(errors="ignore")
    return f"{kept}~{sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]}"
