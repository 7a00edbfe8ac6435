"""Records of ledgers: positions of entries, and the progress of an offload. records.proto documents every field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self
from uuid import UUID

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.engine.metadata.records import Record, require

# Entries in one row of `entries`: 4 to 12 KiB, which a reader of one entry decodes in 0.1 ms.
MAX_RUN_ENTRIES = 4096

# Name of the driver in the context of a ledger that tierfs offloaded; of others it is what their writer recorded.
OUR_DRIVER = "tierfs"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRun(Record):
    """Consecutive entries of a ledger: each one's length, and the place of the first one's payload in the segment."""

    first_entry_id: int = 0
    payload_start: int = 0
    lengths: tuple[int, ...] = ()
    stored_offset: int = 0

    @property
    def end_entry_id(self) -> int:
        """Id after the last entry."""
        return self.first_entry_id + len(self.lengths)

    @property
    def payload_end(self) -> int:
        """Offset after the last entry's payload."""
        return self.payload_start + sum(self.lengths)

    def check(self) -> None:
        """Raise DataLoss unless the run has between one and MAX_RUN_ENTRIES entries."""
        require(0 < len(self.lengths) <= MAX_RUN_ENTRIES, "a run of entries is empty or too long", self.first_entry_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadProgress:
    """Progress of a ledger's offload (PIP-17)."""

    uid_msb: int = 0
    uid_lsb: int = 0
    complete: bool = False
    local_deleted: bool = False
    timestamp_ms: int = 0
    driver_name: str = ""
    driver_properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def uuid(self) -> UUID | None:
        """The attempt; None when none began."""
        return UUID(int=self.uid_msb << 64 | self.uid_lsb) if self.uid_msb or self.uid_lsb else None

    @classmethod
    def begun(cls, uuid: UUID, driver_name: str = "", driver_properties: Mapping[str, str] | None = None) -> Self:
        """Return an attempt that begins now."""
        return cls(
            uid_msb=uuid.int >> 64,
            uid_lsb=uuid.int & (1 << 64) - 1,
            driver_name=driver_name,
            driver_properties=driver_properties or {},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord(Record):
    """Tiering's state of a ledger besides its segment."""

    ledger_id: int = 0
    segment_id: int
    entries: int = 0
    bytes: int = 0
    timestamp_ms: int = 0
    offload: OffloadProgress = OffloadProgress()
    elsewhere: OffloadProgress = OffloadProgress()
    """Of the offloader that a program gave its managed ledger."""
