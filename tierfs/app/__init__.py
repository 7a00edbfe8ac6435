"""Compose a store from the layers below: the composition root.

`store` opens one and owns its parts; with `setup` this folder is the only code that names concrete classes. Every
other module is one verb that a command, a job or a mount needs: it takes an open store, puts layers together and
returns a record. Rule: no policy, no formats, no output here.
"""

__all__ = [
    "adopt",
    "batch_write",
    "dump",
    "fill_cache",
    "fsck",
    "ledger_export",
    "ledger_verify",
    "mount",
    "report",
    "sources",
    "store",
    "verbs",
]
