"""Do the cold work of a store, in the one process that holds its lock.

`lock` is that lock, with a note of its holder. `work` has the tasks, for commands and for the background writer
alike. `requests` lets any process have work done: a row is written by the process that asks, carried out by the
holder, and removed by the first. `writer` is the background writer, a table of tasks with their periods; `loop`
becomes holder when there is none. `failures` keeps what failed, to be listed in `status` and tried again.
"""

__all__ = ["alone", "lock", "loop", "status", "tasks", "verbs", "work"]
