"""Mend what fsck finds: each finding goes to one function, each mend is its own commit.

`mender` chooses the function; `rows` mends records, deciding again inside its transaction; `copies` keeps the good
copies of a chunk and gives up the others; `checksums` computes a lost grid anew where the object's whole CRC32C
proves the bytes, and finds the segments of an object.
"""

__all__ = ["checksums", "copies", "mender"]
