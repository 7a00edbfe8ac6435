"""Where immutable objects live: one narrow protocol, one module per provider, wrappers around them.

Providers (directory, s3, memory) are naive: they map vendor errors and nothing else. Retry, limit and
metrics wrap any of them behind the same protocol; `Uploads` and `RangeUrls` are what some can do besides.
chunkfiles.py is the local tier, whose files grow while they are appended to. Synchronous and thread-safe;
may be imported by every layer above metadata.
"""
