"""Read many segments in parallel in processes that have no store.

The driver selects segments and pins them as one transaction sees them (`selection`), cuts them into partitions
(`planning`) and gives each partition the place and checksums of its bytes (`extents`). An executor fetches them
(`fetching`) and makes rows (`lines`, `batches`) without LMDB: it needs the cold tier, and the store's directory for
bytes that are nowhere else. `scrubbing` checks copies the same way. `stream` follows segments that grow, by offsets.
"""
