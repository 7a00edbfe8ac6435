"""The engine: one module per verb, synchronous and thread-safe, without trio.

A change of a segment is: bytes into a chunk file, fdatasync, one LMDB commit, then the acknowledgement
(invariant 1). Verbs take names, check who else writes, and leave either all of their change or none.
May be imported by reading, background, fuse, spark and cli; imports metadata and chunkstore only.
"""
