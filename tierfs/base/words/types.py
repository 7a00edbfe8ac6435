"""The vocabulary shared by every layer: identifiers, byte ranges, tiers and states. No I/O.

Every range is half-open and in bytes; every time is an integer of milliseconds since the epoch.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import NamedTuple, NewType

from tierfs.base.bytes.frozen import dataclass

SegmentId = NewType("SegmentId", int)
DirectoryId = NewType("DirectoryId", int)
ObjectId = NewType("ObjectId", int)
LocationId = NewType("LocationId", int)
Inode = NewType("Inode", int)
# 32 hexadecimal digits, random: tells two attempts at the same object apart.
AttemptId = NewType("AttemptId", str)

ROOT_DIRECTORY = DirectoryId(1)
ROOT_INODE = Inode(1)

# Grain of every checksum grid: the FUSE request size of an untuned kernel (measured: finer costs CPU).
CRC_BLOCK_BYTES = 128 * 1024

# The archive class of objects in the store's archive place; S3's names of classes have no small letters.
IN_PLACE = "place"

MIB = 1024 * 1024

# The last second of the year 9999: the latest that a date can show.
MAX_TIME_MS = 253_402_300_799_000

# Limits of 64 bits: the years 1677 and 2262.
_MIN_TIME_NS, _MAX_TIME_NS = -(2**63), 2**63 - 1

# Sizes of blocks are Java ints in Pulsar.
MAX_LEDGER_BLOCK_BYTES = 2**31 - 1

# Segments of one pack: 64 MiB of 4 KiB files are 16,384; one index of these names is parsed in 50 ms.
MAX_PACK_ENTRIES = 20_000

# Limit of AWS for the keys and values of one object's user metadata together.
MAX_METADATA_BYTES = 2048


def recordable_ms(time_ms: int) -> int:
    """Return a time that others tell as records have it: the nearest of 1970 to 9999; 0, which is no time, stays.

    File systems and servers have others: 1601 is the zero of NTFS and SMB.
    """
    return time_ms and min(max(time_ms, 1), MAX_TIME_MS)


def recordable_ns(time_ns: int) -> int:
    """Return a file's time as records have it: the nearest of 1677 to 2262."""
    return min(max(time_ns, _MIN_TIME_NS), _MAX_TIME_NS)


class Tier(IntEnum):
    """A place chunks live. The number is stored, so a third tier only adds a member."""

    LOCAL = 0
    COLD = 1


class SegmentKind(IntEnum):
    """The form of a segment's bytes."""

    BYTES = 0
    LEDGER = 1


class SegmentStatus(IntEnum):
    """Life of a segment; only OPEN segments are appended to."""

    OPEN = 0
    SEALED = 1
    SEALED_BY_POLICY = 2
    DELETED = 3


class Ack(StrEnum):
    """Where an append's bytes have to be durable before it is acknowledged."""

    LOCAL = "local"
    """On the local disk."""
    COLD = "cold"
    """In the cold tier, and named by its journal."""


class Compression(StrEnum):
    """Whether cold objects are compressed."""

    OFF = "off"
    """None."""
    AUTO = "auto"
    """Those that become smaller."""
    ZSTD = "zstd"
    """All, as zstd frames."""

    @classmethod
    def _missing_(cls, value: object) -> Compression | None:
        """Look up a word in another case, as `off` has it everywhere."""
        return next((compression for compression in cls if compression.value == str(value).lower()), None)


class RequestState(IntEnum):
    """Progress of a request to the holder."""

    WAITING = 0
    RUNNING = 1
    DONE = 2
    FAILED = 3


class ChunkState(IntEnum):
    """Condition of a chunk's bytes, as far as it is known."""

    GOOD = 0
    SUSPECT = 1
    LOST = 2


class PayloadEncoding(IntEnum):
    """Form in which the plain bytes of an object are stored."""

    RAW = 0
    PULSAR_BLOCK = 1
    """Between frames of 12 bytes, in blocks: the form that Pulsar writes."""
    FIRST_BLOCK = 2
    """Between frames of 4 bytes: the form of PIP-17's first version."""
    ZSTD_FRAMES = 3
    """Compressed in independent frames of zstd, which the checksum runs of the object place."""

    @property
    def is_ledger(self) -> bool:
        """Whether the plain bytes are payloads of a ledger, which its rows of `entries` place."""
        return self in (PayloadEncoding.PULSAR_BLOCK, PayloadEncoding.FIRST_BLOCK)

    @property
    def frame_bytes(self) -> int:
        """Bytes in front of each entry's payload, in an object of a ledger."""
        return _FRAME_BYTES[self]


_FRAME_BYTES = {PayloadEncoding.RAW: 0, PayloadEncoding.PULSAR_BLOCK: 12, PayloadEncoding.FIRST_BLOCK: 4}


class Opener(NamedTuple):
    """A process that opened a file, as FUSE names it; process 0 is outside of the mount's namespace."""

    pid: int
    uid: int


class Payer(NamedTuple):
    """The reader that a fetch counts for: a user, by one of the handles of the process."""

    uid: int
    handle: int


class EntryKind(IntEnum):
    """The kind of thing that a name in a directory stands for."""

    DIRECTORY = 0
    SEGMENT = 1


class ReadPriority(StrEnum):
    """Order of tiers for a byte that both hold: Pulsar's tiered read priorities, whose names are accepted too."""

    LOCAL_ONLY = "local-only"
    LOCAL_FIRST = "local-first"
    OFFLOADED_ONLY = "offloaded-only"
    OFFLOADED_FIRST = "offloaded-first"

    @classmethod
    def _missing_(cls, value: object) -> ReadPriority | None:
        """Look up Pulsar's names: bookkeeper-first, tiered-storage-first, also as BOOKKEEPER_FIRST and so on."""
        ours = (
            str(value).lower().replace("_", "-").replace("bookkeeper", "local").replace("tiered-storage", "offloaded")
        )
        return next((priority for priority in cls if priority.value == ours), None)

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """The tiers that may be asked, best first."""
        return _TIERS_BY_PRIORITY[self]


_TIERS_BY_PRIORITY = {
    ReadPriority.LOCAL_ONLY: (Tier.LOCAL,),
    ReadPriority.LOCAL_FIRST: (Tier.LOCAL, Tier.COLD),
    ReadPriority.OFFLOADED_ONLY: (Tier.COLD,),
    ReadPriority.OFFLOADED_FIRST: (Tier.COLD, Tier.LOCAL),
}


@dataclass(frozen=True, slots=True, order=True)
class ByteRange:
    """Half-open range of bytes, `[start, end)`; empty when both are equal."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not a byte range: [{self.start}, {self.end})")

    @property
    def length_bytes(self) -> int:
        """Number of bytes in the range."""
        return self.end - self.start

    def __bool__(self) -> bool:
        return self.end > self.start

    def intersect(self, other: ByteRange) -> ByteRange:
        """Return the common part; empty (at the later start) when there is none."""
        start = max(self.start, other.start)
        return ByteRange(start, max(start, min(self.end, other.end)))

    def contains(self, other: ByteRange) -> bool:
        """Return whether every byte of `other` lies in this range."""
        return self.start <= other.start and other.end <= self.end

    def of(self, view: memoryview, origin: int = 0) -> memoryview:
        """Return the range's bytes in `view`, whose first byte is at `origin`. Raises ValueError if any is outside."""
        # Python counts a negative end from the back and cuts one that is too large: a wrong sum would be a wrong slice.
        if self.start < origin or self.end > origin + len(view):
            raise ValueError(f"[{self.start}, {self.end}) is not in [{origin}, {origin + len(view)})")
        return view[self.start - origin : self.end - origin]
