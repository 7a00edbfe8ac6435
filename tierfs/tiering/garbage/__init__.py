"""End bytes by policy, delete what is no longer needed, and find what no record names.

`lifetimes` is pure: a stream's members and the time in, the segments and bytes that end out. `retention` carries it
out, and seals by policy. `clocks` decides whether the wall clock can be trusted with deletions, and accepts a corrected
one by command.

`collect` deletes garbage that is due, once the bucket's journal no longer names it (invariant 4). `orphans` compares a
listing with the records, and `strays` lets the holder do so for chunk files, a little at a time. `dead_uploads` finds
multipart uploads that will not be finished. `ballast` is a file whose space may be given up so that a full disk can
still commit.
"""
