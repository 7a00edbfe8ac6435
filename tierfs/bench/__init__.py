"""Measure a mount against the limits of the cold tier and of FUSE, in one run.

`run` makes a store for it and removes everything again; `mounted` reads a mount that is there already. `children`
runs mounts in processes of their own, `raw` reads without tierfs, `null` is the fastest mount that Python can serve,
`figures` holds results. Targets are interleaved and medians compared, because absolute figures belong to the machine
and the day.
"""

__all__ = ["figures", "mounted", "run"]
