"""The process that does the cold work, and the check of everything.

Comes in: policies, requests of other processes, time. Goes out: offloaded, published, evicted and collected bytes, a
status, findings and repairs. It never reads for users, and one process at a time holds a store.
Rooms: `holder` (one lock, one table of verbs, one loop of tasks), `check` (records against files against objects, and
what repairs them).
Open `holder/loop.py` first.
"""
