"""Keep cold blocks on a local disk, so that a restart or a small memory does not fetch them again.

`cache` reads and stores blocks; `files` are its files of slots and records, `slots` says which block lies in which
slot and which goes next, `health` turns a failing disk into a slower mount instead of an error. `fill_plan` chooses
the bytes of a warm-up and `fill` fetches them.
"""
