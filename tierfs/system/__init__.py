"""Adapt to the machine: locks, mounts, processes and signals. No module here knows of a store.

`locks` are open-file-description locks that die with their owner. `mounts` reads the kernel's table of mounts.
`processes` starts children and daemons, and drops the resources that a child of a fork must not share. `signals` maps
signals to requests (end, reload, report) and holds them back while a block must not be interrupted.
"""
