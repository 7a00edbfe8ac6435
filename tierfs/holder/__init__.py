"""Do the cold work of a store, in the one process that holds its lock.

`lock` is that lock, with a note of its holder. `work` does the cold work, for commands and for the background writer
alike, and `verbs` is the table of what a command may request. `requests` lets any process have work done: the process
that asks writes a row and removes it, the holder carries it out (a warm-up: the mount with the disk cache). `writer`
is the background writer, a table of tasks with their periods, which `tasks` repeats; `loop` becomes holder when there
is none; `alone` does the work of a store without a cold tier. `failures` keeps what failed, to be listed in `status`
and tried again; `why` tells a person what keeps a segment's bytes where they are, in the words of `waits`, which sums
them up for a store.
"""
