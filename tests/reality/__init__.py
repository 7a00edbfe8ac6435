"""The proof against reality, small: real commands, kills, disks and servers; `python -m tests.reality` lists it."""
