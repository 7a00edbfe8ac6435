"""A TCP relay in front of a server: it makes the server look far away, and counts what crosses it.

`python -m tests.benchmarks.relay --to HOST:PORT --delay-ms 15 --rate-mb-s 90` prints its own address. Tests and
benchmarks start it by RelayServer (process.py). Bytes stay in the kernel (flow.py), so TLS passes through as it is.

Measured on two cores with 4 connections, neither delay nor rate, medians of 3 and 5: GETs from Ceph RGW through it
reach 0.80 of those without it (0.77 to 0.94); a sender and a receiver that do nothing else 2.0 of 5.0 GB/s. Most of its
time goes into waking the two ends, so that neither larger pipes nor pauses between splices gained anything.
"""
