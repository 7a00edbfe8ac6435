"""Move bytes between the tiers: plan, offload, pack, consolidate, evict; and end them.

Comes in: policies, and the segments that changed. Goes out: cold objects with their rows, and freed local bytes. It
never runs without the holder's lock, and never after the store was fenced.
Crash order of each task: intent, object, verification, commit; an intent without a commit becomes garbage.
`changed_segments` finds what changed, `snapshot` and `candidates` read it, and `policy` and `planner` turn it into
actions with pure functions. Each action is one repeatable task: `offload` makes one object of adjacent chunks
(`compressed_source` has its compressed form), `consolidate` one of adjacent cold ranges, `relocate` moves the live
bytes of a mostly dead object, `evict` drops local bytes that are safely cold.
Rooms: `archive` (other storage classes), `packs` (one object for chunks of many segments), `ledgers` (the same for
ledgers), `garbage` (what nothing refers to), `backup` (dumps of the metadata), `adoption` (objects of other writers).
Open `planner` first.
"""
