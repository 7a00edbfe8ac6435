"""Rebuild a store whose local disk is lost from its bucket alone (invariant 11).

`takeover` wins the bucket from an owner that may be alive, `from_journal` replays the newest sound checkpoint and the
slots after it, `loss` ends segments where the bucket's bytes end. `from_objects` does the same without a journal, from
the objects' names, metadata and indexes (`inventory`, `rebuild_segment`, `ledgers`), and with `app/batches/recovery`
those of distributed writes. Results, one for each segment, are in a `records_file`. `replica` follows a bucket that
another store owns, read-only, by the same replay; `promote` makes it the owner, with its `own_rows`.
"""
