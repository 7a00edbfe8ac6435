"""The command line: one module per command group, loaded when its command is called.

A *session* is what the global options say: the store, JSON or text, how much to tell. *Results* go to
stdout and nothing else does; notes, warnings, progress and errors go to stderr. edge.py is the only place
where an exception becomes a message and an exit code. Names, messages and everything else that others
chose reach the terminal through names.printable.

Commands are thin: they parse, call a verb of app.Store and format what it returns. Nobody imports this
package. `info`, `append` and `ls` must start fast, so that modules import what only some commands need
inside functions.
"""
