"""Put a store together, make one, move one, rebuild one: the composition root.

Comes in: a directory and options. Goes out: an open store, and one record for each verb that a face asks for.
It never decides a policy, writes a format or prints. Only this wing names concrete classes of the wings below.
`store` opens a store and owns its parts; every other module here is one verb that a command, a job or a mount needs.
Rooms: `setup` (creates a store, connects its cold tier), `recovery` (rebuilds a store from its bucket, or follows it),
`batches` (distributed writes: many tasks, one commit), `follow` (files that grow, through their rotations).
Open `store.py` first.
"""
