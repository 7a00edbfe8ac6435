"""Store immutable objects behind one narrow protocol; one folder per provider.

`place` is somewhere that objects are kept: it knows its provider, opens it and puts it in its wrappers.
`protocol` states the contract, and the conformance suite runs it on every implementation. Providers (`directory`,
`s3`, `places`, `memory`) are naive: they map vendor errors and do nothing else. `resilient` bounds, repeats and
measures calls, `read_only` refuses every change; both have the same protocol as the storage inside them. `link`
measures transfers as they happen. `validate` checks names, ranges and metadata the same way for all; `sequential_read`
reads one version of an object from its start to its end; `probe` finds out what a cold tier honours.
`local_files` is the local tier: chunk files that grow while they are active. Synchronous and thread-safe.
"""
