"""Names of segments, directories and ledgers: their rules, their parts, and their form on a terminal."""

from __future__ import annotations

import os
import re
import shlex
from uuid import UUID

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import errors, units
from tierfs.base.words.errors import InvalidRequest

# Return a name as terminals and logs may show it. Errors apply it to their texts by themselves.
printable = errors.printable

# A FUSE directory entry, and one component of an S3 key on strict servers.
MAX_COMPONENT_BYTES = 255

# With an 80-byte prefix and the chunk's own part the key stays under S3's 1024.
MAX_NAME_BYTES = 800

# Ids are longs in BookKeeper.
MAX_LEDGER_ID = 2**63 - 1

_LEDGER_ID_DIGITS = 20
_DIGEST_DIGITS = 16
# Data and index objects of ledgers, as Pulsar names them.
_LEDGER_KEY = re.compile(
    r"(?P<uuid>[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})(-ledger-(?P<ledger>[0-9]{1,19}))?(?P<index>-index)?"
)

# Names in the root that begin so stand for what was removed and is still to be taken apart; never listed.
REMOVED_PREFIX = ".tierfs-removed-"

# Names in the root that begin so stand for what was removed and can be restored; never listed.
TRASH_PREFIX = ".tierfs-trash-"

_HIDDEN_PREFIXES = (REMOVED_PREFIX, TRASH_PREFIX)

# The directory at the root of a mount in which it reports; not listed. Stores of older versions may have this name.
CONTROL_NAME = ".tierfs"

_PATTERN = frozenset("*?[")
_HADOOP_UNFINISHED = "._COPYING_"
_HADOOP_SPECIAL = frozenset(":*?{}[]\\")
_BIDIRECTIONAL = frozenset("\u200e\u200f\u061c" + "".join(map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A)])))
# Slashes, control characters (category Cc) and characters that turn the direction of text around.
_FORBIDDEN = re.compile(f"[/\x00-\x1f\x7f-\x9f{''.join(sorted(_BIDIRECTIONAL))}]")


def as_word(name: str) -> str:
    """Return a name as the last word of a command line, for a shell, in messages that name a command."""
    return ("-- " if name.startswith("-") else "") + shlex.quote(printable(name))


def split(name: str) -> tuple[str, ...]:
    """Split the name of a segment or directory into components; the empty name is the root.

    Leading and trailing slashes are ignored. Raises InvalidRequest for everything design §6 forbids.
    """
    parts = tuple(part for part in name.split("/") if part)
    for part in parts:
        check_component(part)
    try:
        length_bytes = len("/".join(parts).encode())
    except UnicodeEncodeError as exc:
        raise InvalidRequest(f"{printable(name)}: a name must be valid UTF-8") from exc
    if length_bytes > MAX_NAME_BYTES:
        raise InvalidRequest(
            f"{printable(name)}: a name is at most {MAX_NAME_BYTES} bytes, this one has {length_bytes}"
        )
    return parts


def from_os(text: str) -> str:
    """Return the name that stands for a file's name or path, as Python's functions for files return it.

    The names of files are bytes, and a name is their text in UTF-8, whatever the encoding of the locale is, in which
    Python decodes them. Raises InvalidRequest for bytes that are no UTF-8.
    """
    try:
        return os.fsencode(text).decode()
    except UnicodeError as exc:
        raise InvalidRequest(f"{printable(text)}: a name must be valid UTF-8") from exc


def to_os(name: str) -> str:
    """Return a path of the store, such as that of a cold directory, as Python's functions for files take it."""
    return os.fsdecode(name.encode(errors="surrogateescape"))


def check_component(part: str) -> None:
    """Raise InvalidRequest unless `part` can be one component of a name."""
    if part in ("", ".", ".."):
        raise InvalidRequest(f"{part!r} cannot be part of a segment's name")
    try:
        length_bytes = len(part.encode())
    except UnicodeEncodeError as exc:
        raise InvalidRequest(f"{printable(part)}: a name must be valid UTF-8") from exc
    if length_bytes > MAX_COMPONENT_BYTES:
        raise InvalidRequest(f"{printable(part[:40])}…: a component of a name is at most {MAX_COMPONENT_BYTES} bytes")
    if (forbidden := _FORBIDDEN.search(part)) is not None:
        raise InvalidRequest(
            f"{printable(part)}: {forbidden[0]!a} cannot be part of a segment's name",
            remedy="choose a name without that character",
        )


def is_removed(name: str) -> bool:
    """Return whether a full name stands for what was removed, in the trash or not, or lies below it."""
    return name.startswith(_HIDDEN_PREFIXES)


def require_unreserved(name: str) -> None:
    """Raise InvalidRequest for a new name that stands, or lies below one that stands, for something else at the root.

    Names that an older version stored can be read and removed.
    """
    first = name.lstrip("/").partition("/")[0]
    if first == CONTROL_NAME:
        raise InvalidRequest(
            f"{printable(name)}: {CONTROL_NAME} is reserved for the reports of a mount", remedy="choose another name"
        )
    if is_removed(first):
        reserved = f"{REMOVED_PREFIX} and {TRASH_PREFIX}"
        raise InvalidRequest(f"{printable(name)}: names that start with {reserved} are reserved")


def is_in_trash(name: str) -> bool:
    """Return whether a full name stands for what can be restored, or lies below it."""
    return name.startswith(TRASH_PREFIX)


def in_trash(due_ms: int, entry_id: int) -> str:
    """Return the name of an entry in the trash: a listing of the root has them as they fall due."""
    return f"{TRASH_PREFIX}{due_ms:015d}-{entry_id}"


def trash_due_ms(name: str) -> int:
    """Return the time in the name of an entry in the trash."""
    return int(name.removeprefix(TRASH_PREFIX).partition("-")[0])


def after_hidden(name: str) -> str:
    """Return a text that sorts after every name with the hidden prefix of `name`, and before all others after it."""
    prefix = next(prefix for prefix in _HIDDEN_PREFIXES if name.startswith(prefix))
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def join(parts: tuple[str, ...]) -> str:
    """Return the canonical name of `parts`: no leading or trailing slash."""
    return "/".join(parts)


def is_pattern(text: str) -> bool:
    """Return whether a shell would expand a text: as `fnmatch` reads it, it can match other texts."""
    return not _PATTERN.isdisjoint(text)


def is_hadoop_hidden(part: str) -> bool:
    """Return whether Hadoop and Spark leave out a component of a name when they list files."""
    begins = part.startswith(".") or (part.startswith("_") and "=" not in part)  # _a=1 is a partition's directory
    return begins or part.endswith(_HADOOP_UNFINISHED)


def _hiding(part: str) -> str:
    return f"ends with {_HADOOP_UNFINISHED!r}" if part.endswith(_HADOOP_UNFINISHED) else f"starts with {part[0]!r}"


def hadoop_warning(name: str) -> str | None:
    """Return why Hadoop and Spark cannot read a segment of this name by path, or None when they can."""
    for part in name.split("/"):
        if is_hadoop_hidden(part):
            return f"Hadoop and Spark skip {printable(part)}: it {_hiding(part)}"
        special = sorted(_HADOOP_SPECIAL.intersection(part))
        if special:
            return f"Hadoop and Spark cannot address {printable(part)}: it contains {special[0]!r}"
    return None


def cut(text: str, limit_bytes: int) -> str:
    """Return a text that is too long in so many bytes: its beginning, `~` and 16 digits of the SHA-256 of all of it."""
    from hashlib import sha256  # here: names are short, and OpenSSL takes 4 ms to load

    kept = text.encode()[: limit_bytes - 1 - _DIGEST_DIGITS].decode(errors="ignore")
    return f"{kept}~{sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]}"


def of_ledger(ledger_id: int) -> str:
    """Return the last component of a ledger's name: a directory of them lists in the order of their ids."""
    return f"{ledger_id:0{_LEDGER_ID_DIGITS}d}"


@dataclass(frozen=True, slots=True)
class LedgerKey:
    """The parts of an object's name, as Pulsar names those of ledgers."""

    uuid: UUID
    ledger_id: int | None
    """None: of the streaming form, which has several."""
    is_index: bool


def ledger_key(name: str) -> LedgerKey | None:
    """Parse the name of a ledger's object; None for any other name."""
    match = _LEDGER_KEY.fullmatch(name)
    if match is None:
        return None
    number = None if match["ledger"] is None else int(match["ledger"])
    if number is not None and number > MAX_LEDGER_ID:
        return None
    return LedgerKey(UUID(match["uuid"]), number, match["index"] is not None)


def ledger_id(component: str) -> int | None:
    """Return the id in the last component of a ledger's name; None when it has none."""
    return units.decimal(component, MAX_LEDGER_ID)
