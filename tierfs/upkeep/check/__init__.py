"""Check a store against its invariants (design §3): metadata, local files, the bucket, and every byte.

Terms: a *finding* is one thing that is wrong, with its remedy; a *mend* is one repair, its own commit under the
holder's lock, made only where the records or verified bytes prove it right.

Checks read one snapshot at the level of messages, in key order, one pass per database: they must get through records
that the codec would refuse, and through a million chunks in under a minute. Memory that grows with the store is flat
arrays of some 35 bytes per object. `scrub` reads bytes, `repair` mends. Synchronous. `app/check.py` runs them in order.
"""
