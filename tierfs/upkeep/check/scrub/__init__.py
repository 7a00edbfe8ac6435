"""Reads every byte of every copy and compares it with its checksums.

`pieces` lists the ranges to read, `copy_reader` checks one piece, `scrub` runs several at once with a buffer for
each thread, and `verify` is `tierfs check /` and `check --read`.
"""
