"""Parse commands, call a verb, print its result. Each command's module is loaded when it is called.

A *session* holds the global options: the store, JSON or text, verbosity. *Results* go to stdout and nothing else
does; notes, warnings, progress and errors go to stderr. `errors` is the only place in which an exception becomes a
message and an exit code. Names and messages chosen by others reach the terminal through names.printable.

`info`, `append` and `ls` must start fast, so that modules import inside functions what only some commands need.
"""

__all__ = ["main"]
