"""Store immutable objects behind one narrow protocol; one folder per provider.

`protocol` states the contract, and the conformance suite runs it on every implementation. Providers (`directory`,
`s3`, `memory`) are naive: they map vendor errors and do nothing else. `retry` repeats failed calls, `wrappers` limit
and measure them, `read_only` refuses every change; each of these has the same protocol as the storage inside it.
`link` measures transfers as they happen, `link_probe` on purpose, and `link_limit` says what limits them.
`validate` checks names, ranges and metadata the same way for all; `probe` finds out what a cold tier honours.
`local_files` is the local tier: chunk files that grow while they are active. Synchronous and thread-safe.
"""

__all__ = [
    "directory",
    "http",
    "link",
    "link_limit",
    "link_probe",
    "local_files",
    "probe",
    "protocol",
    "read_only",
    "retry",
    "s3",
    "validate",
    "wrappers",
]
