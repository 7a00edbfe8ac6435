"""Measurements against the limit: raw boto3, a null filesystem, raw disk. `make bench` runs them all.

Ratios come from one run with interleaved repetitions; absolute figures belong to the machine of the day.
"""
