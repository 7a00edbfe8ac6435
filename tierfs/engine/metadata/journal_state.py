"""Parts of a store's record: its owner's position in the bucket's journal. records.proto documents their fields."""

from __future__ import annotations

from tierfs.base.bytes.frozen import dataclass


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
    published_ms: int = 0
    queued_ms: int = 0
    asked: OwnerAsked = OwnerAsked()
    left: LeftPlace = NOWHERE

    @property
    def newest_slot(self) -> int:
        """The newest slot that this owner knows to be in the bucket; 0 before it published anything."""
        return self.next_slot - 1 if self.published_sequence else 0
