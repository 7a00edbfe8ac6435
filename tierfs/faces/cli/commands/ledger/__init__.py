"""Define `tierfs ledger …`.

`ledger` creates, lists and closes ledgers, and handles all ledgers of a managed ledger; `append`, `read`, `export` and
`verify` are a file each.
"""
