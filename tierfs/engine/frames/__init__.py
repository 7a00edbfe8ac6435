"""Compress and decompress zstd frames, and write and read the seek table behind them. Pure.

A compressed object is a sequence of *frames*, each independent of the others, and a *seek table* with the size of each:
the published seekable format of zstd, whose tools unpack it. `zstd` is the one door to the library, `boundaries` knows
where frames end. `seek_table` has the bytes of the table, `frame_map` finds the frames of a range. `skipped` has the
bytes of a frame for what is no content.

All input is hostile. Readers of objects are strict: DataLoss is the answer to everything that no writer of tierfs
makes. Frames of messages and of files that are ingested may have any form.
"""
