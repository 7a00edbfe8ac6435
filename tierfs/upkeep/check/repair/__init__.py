"""Repairs of what `tierfs check` finds: one function for each finding, one commit for each mend.

`mender` chooses the function; `rows` mends records and decides again inside its transaction; `copies` keeps the good
copies of a chunk and gives up the others; `checksums` recomputes a lost grid if the object's whole CRC32C proves the
bytes, and finds the segments of an object; `renew` moves the bytes of an object with a damaged table to a new one.
"""
