"""Reads every byte of every copy and compares it with its checksums.

`pieces` lists the ranges to read, `copy_reader` checks one piece, `scrub` runs several at once with a buffer for
each thread, and `verify` is `tierfs check /` and `check --read`. `tables` reads the seek tables of compressed objects
and the indexes of packs, which a recovery from objects needs.
"""
