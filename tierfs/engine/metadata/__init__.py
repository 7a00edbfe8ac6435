"""Store this host's metadata: LMDB rows encoded with protobuf, and the pure edits on them.

records.proto documents every field. `records` has the frozen dataclasses that the rest of tierfs uses, with `*_records`
and `record_parts` beside it; `tables` lists the databases and builds their keys (big-endian, so that byte order is
number order), and `codec` is the only place in which dataclasses meet protobuf. `environment` owns the rules of LMDB,
`host` those of the machine below it; `write_watch` knows who has the write lock, `lmdb_errors` translates. `scratch`
has rows of one run, where there may be more of them than memory holds; `row_batches` works through a table in steps.

A change is one write transaction (`transaction`) without I/O of its own: each record is checked before it is written,
sums are kept by the same commit, and a change that the bucket's journal must name is queued in the outbox (`changes`),
whose objects are `frames`. `chain` edits a segment's linked list of chunks as pure functions; `chains` and
`chain_edits` apply those edits with their neighbours, reference counts and garbage. `layout` is a snapshot of one
window of a segment, `placements` one walk over a chain. `checksums` has the rows of an object's blocks, `frame_rows`
the places of its frames in them. `untrusted` checks rows that come from a bucket.
"""
