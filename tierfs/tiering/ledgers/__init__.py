"""Offload ledgers in Pulsar's form: a data object, an index object, and a copy of the entries' rows.

`offload` makes the objects of one closed ledger, with a fresh UUID for each attempt; `source` frames payloads into
blocks as they are uploaded; `copies` writes, lists and reads back the objects beside the data object; `managed`
offloads the ledgers before a position and keeps two runs over one managed ledger apart.
"""
