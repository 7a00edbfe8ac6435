"""Define `tierfs ledger …`.

`ledger` creates, lists and closes ledgers, and handles all ledgers of a managed ledger, `append` writes entries, and
`entries` reads, exports and verifies them.
"""
