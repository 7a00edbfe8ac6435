"""Spark: read segments by name, follow them as a stream, write them, and run jobs over a store.

Comes in: a path or `format("tierfs")`, with options. Goes out: Arrow batches, committed writes, reports. It never
appends through a mount, and nothing below imports it: the command line and the doctor load it by name when asked.
Rooms: `reader` (what to read, as lines, entries or messages; no Spark), `spark` (the data source and its jobs),
`commands` (`tierfs pipeline`); `report.py` is what a store costs, `doctor.py` the checks of executors.
Open `spark/source.py` first.
"""
