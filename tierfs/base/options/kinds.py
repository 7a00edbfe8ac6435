"""Kinds of values that settings take: their units, their ranges, and the texts that are allowed."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import MAX_LEDGER_BLOCK_BYTES, MIB
from tierfs.base.words.units import MAX_BYTES, MAX_S

# Of things that are only counted. A guess: more is a slip of the finger.
_MOST = 1_000_000
# Of threads, requests and connections: a client makes room for all of its connections at once.
_MOST_AT_ONCE = 1024

LogLevel = Literal["debug", "info", "warning"]
LogFormat = Literal["text", "json"]
# What an object's encryption is left to; AES256 is SSE-S3, the others are SSE-KMS.
Encryption = Literal["bucket", "AES256", "aws:kms", "aws:kms:dsse"]

# S3's User Guide, "Categorizing your storage using tags": at most 10, no name twice, none that begins with aws:.
_TAG = r"(?!aws:)[A-Za-z0-9_.:/+@%-]{1,128}=[A-Za-z0-9_.:/=+@%-]{0,256}"

# A port is at most 65535.
_PORT = r"(?:[0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"

# Bucket in the URL's path, or in its host name; auto: path for a host that has no sub-domains.
Addressing = Literal["auto", "path", "virtual"]


# What becomes of the reads of a user who has read enough.
WhenSpent = Literal["wait", "refuse"]


class Unit(Enum):
    """The notation of a value."""

    NUMBER = "number"
    SIZE = "size"
    DURATION = "duration"
    DIRECTORY = "directory"


@dataclass(frozen=True, slots=True)
class ValueKind:
    """The unit of a setting and its range: every value in it works."""

    unit: Unit
    least: float = 0
    most: float = 0

    @property
    def may_be_off(self) -> bool:
        """Whether 0, which is none of it, may be written as `off`."""
        return self.unit is not Unit.DIRECTORY and self.least == 0


@dataclass(frozen=True, slots=True)
class TextKind:
    """The texts that a setting takes besides the empty one."""

    form: str
    """A regular expression for the whole of it."""
    told: str


Count = Annotated[int, ValueKind(Unit.NUMBER, 1, _MOST)]
CountOrNone = Annotated[int, ValueKind(Unit.NUMBER, 0, _MOST)]
AtOnce = Annotated[int, ValueKind(Unit.NUMBER, 1, _MOST_AT_ONCE)]
Percent = Annotated[int, ValueKind(Unit.NUMBER, 1, 100)]
Size = Annotated[int, ValueKind(Unit.SIZE, 1, MAX_BYTES)]
SizeOrNone = Annotated[int, ValueKind(Unit.SIZE, 0, MAX_BYTES)]
# Bytes per second. `contradictions.py` refuses what is more than none and too little.
Rate = Annotated[int, ValueKind(Unit.SIZE, 0, MAX_BYTES)]
# The kernel reads up to 1 MiB at once; with less than a block of 128 KiB a read would wait for ever.
Budget = Annotated[int, ValueKind(Unit.SIZE, MIB, MAX_BYTES)]
# S3 takes no smaller part of an upload, except the last one.
BlockSize = Annotated[int, ValueKind(Unit.SIZE, 5 * MIB, MAX_LEDGER_BLOCK_BYTES)]
Seconds = Annotated[float, ValueKind(Unit.DURATION, 0.001, MAX_S)]
SecondsOrNone = Annotated[float, ValueKind(Unit.DURATION, 0, MAX_S)]
WholeSecondsOrNone = Annotated[int, ValueKind(Unit.DURATION, 0, MAX_S)]
# Of a standby, up to a month.
Patience = Annotated[int, ValueKind(Unit.DURATION, 0, 30 * 86_400)]
# Sockets take at most 2^31 ms; with less than 0.1 s every request of a far server would fail.
Timeout = Annotated[float, ValueKind(Unit.DURATION, 0.1, 86_400)]
Directory = Annotated[str, ValueKind(Unit.DIRECTORY)]
# Servers other than AWS have classes of their own. Bytes in an archive are not read before they are restored.
StorageClass = Annotated[
    str,
    TextKind(
        r"(?!(?i:GLACIER|DEEP_ARCHIVE)$)[A-Za-z0-9_.-]{1,64}",
        "a storage class with immediate access, like STANDARD_IA or GLACIER_IR: not GLACIER or DEEP_ARCHIVE",
    ),
]
Address = Annotated[str, TextKind(rf"\S+:{_PORT}", "HOST:PORT, like 127.0.0.1:9160")]
PortOrAddress = Annotated[
    str, TextKind(rf"(?:\S+:)?{_PORT}", "a port of this machine, or HOST:PORT, like 9150 or 127.0.0.1:9150")
]
KmsKey = Annotated[str, TextKind(r"[!-~]{1,2048}", "the id, ARN or alias of a key")]
Program = Annotated[str, TextKind(r"[^\x00-\x1f\x7f]{1,4096}", "a program with its arguments, quoted as in a shell")]
Users = Annotated[
    str,
    TextKind(r"[A-Za-z0-9_.-]{1,64}(?: [A-Za-z0-9_.-]{1,64}){0,99}", "names or numbers of users, separated by blanks"),
]
Tags = Annotated[
    str,
    TextKind(
        rf"(?!.*(?:^| )([^= ]+)=[^ ]*(?: .*)? \1=){_TAG}(?: {_TAG}){{0,9}}",
        "at most ten NAME=VALUE with different names, separated by blanks; characters other than letters, digits and "
        "_.:/+@- are written like %20",
    ),
]
