"""Parts of records: an owner's position in the bucket's journal, and what segments and directories have in addition.

records.proto documents their fields.

Every store epoch has a range of its own for the numbers that an owner hands out. A lost owner may have used ids, slots
and sequences that no later owner can see (objects that it created and never published, a journal that is gone); a later
epoch begins beyond all of them.
"""

from __future__ import annotations

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.names import printable
from tierfs.base.words.types import SegmentStatus, recordable_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestedFile:
    """The file that a segment was copied from; mode 0: not copied from a file."""

    mode: int = 0
    modified_ns: int = 0
    length: int = 0

    def __post_init__(self) -> None:
        recordable = recordable_ns(self.modified_ns)
        if recordable != self.modified_ns:
            object.__setattr__(self, "modified_ns", recordable)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishIntent:
    """A journal slot that is about to be created."""

    slot: int = 0
    first_sequence: int = 0
    last_sequence: int = 0
    attempt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointIntent:
    """A checkpoint whose parts are being written."""

    attempt: str = ""
    slot: int = 0
    last_sequence: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fencer:
    """The owner that was found in the bucket instead of this store, as far as it is known."""

    store_id: str = ""
    host: str = ""
    since_ms: int = 0
    moved_to: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftPlace:
    """The place of the cold tier before the present one, where a note is to name that one; without a URL there is none.

    See journal/left.py.
    """

    url: str = ""
    endpoint_url: str = ""
    region: str = ""
    profile: str = ""
    slot: int = 0
    left_ms: int = 0


NOWHERE = LeftPlace()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerAsked:
    """The last time a process of this store asked the bucket for its owner, answered or not."""

    boot_id: str = ""
    boot_ms: int = 0

    def at_s(self, boot_id: str) -> float | None:
        """Return its time by the clock of this boot; None when it was asked in another one, or never."""
        return self.boot_ms / 1000 if self.boot_id == boot_id else None


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalState:
    """This owner's position in the bucket's journal. Slots start at 1; an intent without attempt means none."""

    next_slot: int = 0
    published_sequence: int = 0
    checkpoint_slot: int = 0
    previous_checkpoint_slot: int = 0
    intent: PublishIntent = PublishIntent()
    fenced_by_epoch: int = 0
    checkpoint: CheckpointIntent = CheckpointIntent()
    fencer: Fencer = Fencer()
    wrong_place: str = ""
    superseded_kept: int = 0
    superseded_error: str = ""
    asked: OwnerAsked = OwnerAsked()
    left: LeftPlace = NOWHERE

    @property
    def newest_slot(self) -> int:
        """The newest slot that this owner knows to be in the bucket; 0 before it published anything."""
        return self.next_slot - 1 if self.published_sequence else 0


# Bits of a number within its epoch: 136 years of one id, slot or change per second.
_NUMBER_BITS = 32

# More owners than there can have been; the ranges of a few more still end below 2^63.
MAX_EPOCH = 2**31 - 32


def first_of(epoch: int) -> int:
    """Return the first number of an epoch."""
    return epoch << _NUMBER_BITS


def epoch_of(number: int) -> int:
    """Return the epoch in whose range a number lies; that of the first owner's numbers is 0."""
    return number >> _NUMBER_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerView:
    """The owner's state of a segment that a replica shows only as far as the bucket holds it; length 0: the same."""

    length: int = 0
    status: SegmentStatus = SegmentStatus.OPEN
    sealed_ms: int = 0


NOTHING_HELD_BACK = OwnerView()


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The removal that put a segment or directory into the trash, with the sums at and below it; due 0: not there."""

    path: str = ""
    removed_ms: int = 0
    due_ms: int = 0
    segments: int = 0
    directories: int = 0
    bytes: int = 0
    local_bytes: int = 0
    cold_bytes: int = 0
    uncovered_bytes: int = 0
    active_bytes: int = 0
    sequence: int = 0


NOT_REMOVED = Removal()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterInfo:
    """The process that appends to a segment; for messages."""

    pid: int = 0
    host: str = ""
    command: str = ""
    since_ms: int = 0

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} ({printable(self.command)})" if self.pid else "an unknown process"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionTimer:
    """A foreign location that the holder adopts again and again; every_s 0: it does not."""

    every_s: int = 0
    layout: str = ""
    directory_id: int = 0
    last_ms: int = 0
    accept_loss: bool = False


NOT_REPEATED = AdoptionTimer()
