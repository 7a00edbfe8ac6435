"""The quota of the cold tier: the bytes that a store may have there, and whether one more object fits.

What counts is what is paid for: the store's own objects of segments' bytes, those that were replaced or removed and are
not deleted yet, and those being made. Adopted objects are another's; the journal and the objects beside those of
ledgers are small. The sums hold the first two, so that a look costs the same however many objects there are.
"""

from __future__ import annotations

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import units
from tierfs.base.words.errors import QuotaReached
from tierfs.engine.metadata.holder_records import FailureRecord
from tierfs.engine.metadata.sums import Sums, recount
from tierfs.engine.metadata.tables import INTENTS
from tierfs.engine.metadata.transaction import ReadTransaction

SETTING = "cold.quota_bytes"
REMEDY = (
    f"raise it: tierfs config {SETTING}=SIZE; or delete bytes there: tierfs rm --now, tierfs trim, tierfs gc --delete"
)


@dataclass(frozen=True, slots=True)
class ColdUse:
    """The bytes of a store in its cold tier, and its limit."""

    quota_bytes: int
    """0 without a quota."""
    object_bytes: int
    garbage_bytes: int
    making_bytes: int

    @property
    def bytes(self) -> int:
        """All that counts."""
        return self.object_bytes + self.garbage_bytes + self.making_bytes

    @property
    def room_bytes(self) -> int | None:
        """Bytes that still fit, 0 at least; None without a quota."""
        return max(0, self.quota_bytes - self.bytes) if self.quota_bytes else None

    def keeps_out(self, refused: FailureRecord | None) -> bool:
        """Return whether nothing fits, or not the object that was refused last, of which the holder left a row."""
        wanted_bytes = 1 if refused is None else max(1, refused.bytes)
        return self.room_bytes is not None and self.room_bytes < wanted_bytes

    def __str__(self) -> str:
        return f"{units.size(self.bytes)} of {units.size(self.quota_bytes)} ({SETTING})"


def use_of(txn: ReadTransaction, totals: Sums | None = None) -> ColdUse:
    """Return what the store has in its cold tier; `totals` if they are known."""
    totals = totals or txn.sums or recount(txn.scan_raw)
    making = sum(intent.end_offset - intent.start_offset for _, intent in txn.scan(INTENTS))
    return ColdUse(txn.host.cold_quota_bytes, totals.cold_object_bytes, totals.cold_garbage_bytes, making)


def require_room(txn: ReadTransaction, wanted_bytes: int) -> None:
    """Raise QuotaReached unless an object of `wanted_bytes` fits. Costs nothing without a quota."""
    if not txn.host.cold_quota_bytes:
        return
    use = use_of(txn)
    if use.room_bytes is not None and wanted_bytes > use.room_bytes:
        raise QuotaReached(
            f"the cold tier has {use}: no room for {units.size(wanted_bytes)} more",
            remedy=REMEDY,
        )
