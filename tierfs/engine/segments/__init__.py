"""Change segments: one module per verb, synchronous and thread-safe, without trio.

An append is: bytes into the active chunk's file (`append`, `active_chunk`), fdatasync, one LMDB commit shared by the
concurrent appenders (`group_commit`), then the acknowledgement (invariant 1). `ownership` fences a writer that was
replaced; `writer_locks` tells who is alive. `create` makes one segment, `bulk_create` many with all their bytes. Every
verb takes names, checks for other writers, and leaves all of its change or none. `delete` removes a name in one commit
and its rows in commits of bounded size; `trash` keeps what a person removed for a while. `stat`, `usage` and
`endangered` describe. `engine` is the face for one process; `ledgers` and `managed_ledger` number entries on top of
segments.
"""
