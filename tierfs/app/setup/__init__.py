"""Create a store and connect it to its cold tier.

`create` checks everything first and leaves nothing if it fails. `connect` chooses the storage class of a location and
wraps it. `place` records another address of the cold tier.
"""
