"""Keep objects as files below a directory, on any local or network filesystem.

`tree` holds the root open and reaches everything from its descriptor, never through a symbolic link. `write` puts a
file under its name as a whole or not at all, even through kill -9, and `kernel_copy` copies ranges between files.
`read` reads one file; `listing` lists all in order of full names with one directory in memory at a time; `metadata`
keeps user metadata in extended attributes or in a file of JSON.
"""
