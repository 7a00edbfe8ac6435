"""Words, bytes, options and the operating system: what every other wing speaks with.

Comes in: plain values and system calls. Goes out: types, errors with a remedy, checked settings, locks, clocks.
It never opens a store, and imports nothing else of tierfs.
Rooms: `words` (errors, types, names, units), `bytes` (checksums, ranges, times of bytes, parallel work), `options`
(settings and policies), `system` (files, clocks, locks, mounts, processes, metrics).
Open `words/errors.py` first: it names every way in which a call may fail.
"""
