"""What the journal of a store of small segments takes: the rows of a table in docs/limits.md.

`python -m tests.engine.journal.arithmetic` prints them. test_arithmetic.py finds the sizes with the real code.
"""

from __future__ import annotations

from dataclasses import dataclass

from tierfs.engine.journal.levels import MOST_WRITTEN, PART_BYTES

DAY_S = 86_400
ENTRY_S = 3
"""Between two slots."""
ENTRY_BYTES = 1140
"""A slot with three segments, each in a pack of its own."""
LEVEL_BYTES = 690
"""What a checkpoint stores of it, with its copy."""
PLAIN_BYTES, STATE_BYTES = 110, 21
"""A segment in a pack, in the state of a checkpoint: before and after compression, without the copy."""
CHECKPOINT_ENTRIES = 1000
RECOVERY_US, REPLICA_US, TAKEOVER_US = 71, 79, 10
"""CPU time for each sealed segment on a busy machine: measured with 1,000,000."""
CHECKS_A_DAY = 2 * DAY_S // 60
"""Of the owner and of the mark, one a minute each."""
_REQUEST_DOLLARS, _GB_DOLLARS = 0.005 / 1000, 0.023
_MB, _MONTH_DAYS = 1e6, 30


@dataclass(frozen=True)
class Journal:
    """The journal of a store of so many small segments, to which one is appended each second."""

    segments: int

    @property
    def state_bytes(self) -> int:
        """The state with its copies."""
        return 2 * STATE_BYTES * self.segments

    @property
    def objects(self) -> int:
        """Parts of the state with their copies, and the slots of two checkpoints."""
        return 2 * -(-PLAIN_BYTES * self.segments // PART_BYTES) + 2 * CHECKPOINT_ENTRIES

    @property
    def entry_bytes(self) -> int:
        """The slots of a day."""
        return DAY_S // ENTRY_S * ENTRY_BYTES

    @property
    def days_of_a_state(self) -> float:
        """The least time until the state is written again, so that checkpoints take no more bytes than they may."""
        slots = DAY_S // ENTRY_S
        return self.state_bytes / (slots * (MOST_WRITTEN * ENTRY_BYTES - LEVEL_BYTES))

    @property
    def requests(self) -> int:
        """A PUT and a LIST for each slot of a day, the checks, and a deletion of many old slots for each checkpoint."""
        return 2 * DAY_S // ENTRY_S + CHECKS_A_DAY + DAY_S // ENTRY_S // CHECKPOINT_ENTRIES

    @property
    def replayed_bytes(self) -> float:
        """What a recovery or the first copy of a replica reads: levels have at most half the bytes of the state."""
        return 1.5 * STATE_BYTES * self.segments + 2 * CHECKPOINT_ENTRIES * ENTRY_BYTES

    @property
    def dollars(self) -> float:
        """Requests and storage of a month, at the prices of limits.md."""
        stored_bytes = 1.5 * self.state_bytes + 2 * CHECKPOINT_ENTRIES * ENTRY_BYTES
        return _MONTH_DAYS * self.requests * _REQUEST_DOLLARS + stored_bytes / 1e9 * _GB_DOLLARS


def rows(sizes: tuple[int, ...] = (10**6, 10**7, 10**8)) -> list[str]:
    """The rows of the table."""
    every = [Journal(size) for size in sizes]
    table = {
        "state in the bucket, with its copies": [f"{each.state_bytes / _MB:,.0f} MB" for each in every],
        "objects of the journal": [f"{each.objects:,}" for each in every],
        "journal entries of a day": [f"{each.entry_bytes / _MB:.0f} MB" for each in every],
        "all that is written a day, at most": [f"{3 * each.entry_bytes / _MB:.0f} MB" for each in every],
        "days until the state is written again, at least": [f"{each.days_of_a_state:.1f}" for each in every],
        "requests a second": [f"{each.requests / DAY_S:.2f}" for each in every],
        "dollars a month": [f"{each.dollars:.2f}" for each in every],
        "a recovery reads, at most": [f"{each.replayed_bytes / _MB:,.0f} MB" for each in every],
        "CPU time of a recovery": [f"{RECOVERY_US * each.segments / 60e6:,.1f} min" for each in every],
        "CPU time of the first copy of a replica": [f"{REPLICA_US * each.segments / 60e6:,.1f} min" for each in every],
        "CPU time of a standby's takeover": [f"{TAKEOVER_US * each.segments / 60e6:,.1f} min" for each in every],
    }
    return [f"| {name} | {' | '.join(values)} |" for name, values in table.items()]


if __name__ == "__main__":
    print("\n".join(rows()))
