"""Parse commands, call a verb, print its result. The module of a command is loaded when the command is called.

A *session* holds the global options: the store, JSON or text, verbosity. Only *results* go to stdout; notes,
warnings, progress and errors go to stderr. `errors` is the only module that turns an exception into a message and an
exit code. Names and messages from outside tierfs reach the terminal through names.printable.

`info`, `append` and `ls` must start fast, so imports that only some commands need are inside functions.
"""
