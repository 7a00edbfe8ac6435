"""Store this host's metadata: LMDB rows encoded with protobuf, and the pure edits on them.

records.proto documents every field. `records` has the frozen dataclasses that the rest of tierfs uses; `tables` lists
the databases, builds their keys (big-endian, so that byte order is number order) and is the only place in which
dataclasses meet protobuf. `environment` owns the rules of LMDB, `host` refuses filesystems it cannot work on.

A change is one write transaction (`transaction`) without I/O of its own: each record is checked before it is written,
sums are kept by the same commit, and a change that the bucket's journal must name is queued in the outbox (`changes`).
`chain` edits a segment's linked list of chunks as pure functions; `chains` and `chain_edits` apply those edits with
their neighbours, reference counts and garbage. `layout` is a snapshot of one window of a segment. `untrusted` checks
rows that come from a bucket.
"""
