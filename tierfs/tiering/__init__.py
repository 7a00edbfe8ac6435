"""Move bytes between the tiers: plan, offload, pack, consolidate, evict.

`changed_segments` tells what changed, for mounts too; `snapshot` and `candidates` read it, and `policy` and `planner`
turn it into actions with pure functions, kept current segment by segment. Each action is one repeatable task: `offload`
makes one object of neighbouring chunks, `packing` one of the chunks of many segments, `consolidate` one of neighbouring
cold ranges, and `repack` moves the live chunks out of a mostly dead pack. `evict` drops local bytes that are safely
cold.

Crash order: intent, object, verification, commit; an intent without a commit becomes garbage. Only the holder of the
store runs these tasks, and never after it was fenced. `ledgers` does the same for ledgers.
"""
