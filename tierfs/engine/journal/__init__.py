"""Write and read the bucket's ordered log of metadata.

An owner's committed changes wait in the outbox. `publish` puts them into one create-only slot after another, so that
two owners can never both win a slot. `checkpoint` writes the whole metadata at one position, manifest last. `names`
sorts slots before checkpoints: one listing finds both. `cold_identity` checks whether a place is this store's cold
tier, by its `store_mark` and by the newest slot there; `owner_watch` asks it beside the changes of a process. `epochs`
records each owner's epoch for the case that the journal is lost.

`batch_markers` proves beside the objects of a distributed write that the journal names its commit.

`reader` lists and fetches what a bucket holds, each of its `objects` checked first; `replay` applies it to a database,
by `replay_links` the chains and by `replay_names` the tree, for recovery, replicas and single segments. Order of a
crash: object, journal, then deletion.
"""
