"""Seal segments and end their bytes by policy.

`policy` is pure: a stream's members and the time in, the segments and bytes that end out. `retention` carries it out.
`clocks` decides whether the wall clock can be trusted with deletions, and accepts a corrected one by command.
"""
