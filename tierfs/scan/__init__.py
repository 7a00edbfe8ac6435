"""Scans: many segments read in parallel by processes that have no store.

The driver pins a snapshot (`snapshot`), cuts it into partitions (`planning`) and tells each of them where its bytes
lie, with their checksums (`extents`). An executor reads them (`fetching`, `lines`, `entries`) without LMDB: it needs
the cold tier, and for bytes that are nowhere else the store's directory.
"""
