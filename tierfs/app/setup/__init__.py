"""Create a store, and give its cold tier another address.

`create` checks everything first and leaves nothing if it fails. `place` records another address of the cold tier.
`locations` holds the connections of one open store. `typed` finds the store of a word that a person typed.
"""
