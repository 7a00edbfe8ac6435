"""Segments, their rows, their chunks and the bucket's journal: the part that must never lose a byte.

Comes in: appends, seals, trims, deletions, and objects that others have made. Goes out: durable bytes, and rows that
say where each of them is. It never decides when bytes move, and never waits in an event loop: no trio.
Rooms: `segments` (the verbs), `metadata` (LMDB rows and pure edits on them), `chunkstore` (one protocol for objects,
one folder a provider), `journal` (the bucket's log of the rows), `ledger` (Pulsar's bytes), `frames` (zstd's bytes),
`testing` (the contract of a provider, as tests).
Open `segments/append.py` first.
"""
