"""The truth of this host: LMDB records encoded with protobuf, and the pure edits on them.

records.proto is the reference for every field; records.py holds the frozen dataclasses the rest of
tierfs uses; codec.py is the only place where both meet. keys.py orders the keys, environment.py owns
the LMDB rules, transaction.py gives typed access inside one transaction. chain.py, layout.py and
journal.py are pure. Every mutation is one write transaction without I/O of its own; record.check()
runs on whatever is written. May be imported by every layer above the core.
"""
