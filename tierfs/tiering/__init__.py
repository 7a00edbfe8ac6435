"""Move bytes between the tiers: plan, offload, pack, consolidate, evict.

`snapshot` and `candidates` tell what changed; `policy` and `planner` turn it into actions, as pure functions and kept
current segment by segment. Each action is one task that may be repeated: `offload` makes one object of neighbouring
chunks, `packing` one of the chunks of many segments, `consolidate` one of neighbouring cold ranges, `repack` moves
what still counts of a mostly dead pack. `evict` drops local bytes that are safely cold.

Order of a crash: intent, object, verification, commit; an intent without a commit becomes garbage. Only the holder of
the store runs these tasks, and never after it was fenced. `ledgers` does the same for ledgers.
"""

__all__ = [
    "batch_job",
    "batch_upload",
    "candidates",
    "consolidate",
    "consolidate_command",
    "consolidate_plan",
    "evict",
    "ledgers",
    "objects",
    "offload",
    "offload_command",
    "offload_queue",
    "packing",
    "packs",
    "planner",
    "policy",
    "repack",
    "snapshot",
]
