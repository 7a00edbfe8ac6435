"""The ways in: command line, HTTP, Python, fsspec, and the doctor.

Comes in: words, requests, calls. Goes out: a result, or one clear error with a remedy. It never holds logic of a store:
each face parses, calls a verb of `app` or `upkeep`, and prints.
Rooms: `cli` (the command `tierfs`), `admin` (the HTTP API), `python` (`tierfs.open_store`), `fsspec` (`tierfs://`
URLs), `doctor` (checks of a machine and a store).
Open `cli/main.py` first: its table names every command and the module that does it.
"""
