"""Dump a store or a segment, and bring it back.

`store` writes and reads all rows of all databases in framed parts. `segment` puts the metadata of one cold segment into
the bucket, and links its objects again under its name as long as they are there.
"""
