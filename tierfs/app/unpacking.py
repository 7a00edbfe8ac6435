"""Decompress a file while it is read, by the end of its name, in bounded memory."""

from __future__ import annotations

import os
from typing import IO, cast

# Ends of names that mean a compressed file.
COMPRESSED = (".gz", ".xz", ".bz2", ".zst")


def is_compressed(name: str) -> bool:
    """Return whether the name of a file says that it is compressed."""
    return name.endswith(COMPRESSED)


def plain_name(name: str) -> str:
    """Return a file's name without such an end; unchanged where it has none, or is nothing else."""
    stem, end = os.path.splitext(name)
    return stem if end in COMPRESSED else name


def unpacking(path: str, packed: IO[bytes]) -> IO[bytes]:
    """Return what decompresses an open file, by the end of its name. Closing it leaves the file open.

    Reads raise errors of each format for a file that is damaged or ends too early. Raises ValueError for another end.
    """
    if path.endswith(".gz"):
        import gzip

        return cast(IO[bytes], gzip.GzipFile(fileobj=packed))
    if path.endswith(".xz"):
        import lzma

        return lzma.LZMAFile(packed)
    if path.endswith(".bz2"):
        import bz2

        return bz2.BZ2File(packed)
    if path.endswith(".zst"):
        from tierfs.engine.frames.zstd import Unpacking

        return cast(IO[bytes], Unpacking(packed))
    raise ValueError(f"{path} has no known end of a compressed file")
