"""Adapt to the machine: locks, mounts, processes and signals. No module here knows of a store.

`extras` names packages that are not installed, and the command that installs them. `forks` drops the resources that a
child of a fork must not share, `guards` holds signals back while a block must not be interrupted. `osio` makes whole
reads and durable names, `os_errors` turns errors of the system into ours. `memory_limit` reads control groups.
`metrics` is the table of all metrics, `prometheus` counts and shows them. `locks` are open-file-description locks that
die with their owner. `places` reads the kernel's table of mounts and finds the one that covers a path, `mounts` makes
requests to them. `processes` starts children and daemons. `signals` maps signals to requests: end, reload, report.
"""
