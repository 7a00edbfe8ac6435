"""Lay out a store's directory, create it, and connect it to its cold tier.

`paths` names the files of a store. `create` checks everything first and leaves nothing if it fails. `connect` chooses
the storage class of a location and wraps it.
"""

__all__ = ["connect", "create"]
