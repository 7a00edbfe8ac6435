"""Define `tierfs ledger …`.

`ledger` creates, lists and closes ledgers, `append` writes entries, `entries` reads, exports and verifies them,
`managed` handles all ledgers of a managed ledger.
"""
