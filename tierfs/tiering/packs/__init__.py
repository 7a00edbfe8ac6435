"""Share one cold object between chunks of many segments.

`format` is the form of a pack: payloads, the index that names them, and a trailer; `pack_bytes` makes it in memory.
`pack_policy` decides which segments share one, `links` links their chunks in the database.
`packing` makes one of small complete chunks, `repack` one of those that are still alive in a pack that is mostly dead,
or of plain ones that `plain_packs` finds to be compressed; `append_pool` makes one of appends that wait for it.
"""
