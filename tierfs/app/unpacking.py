"""Decompress a file while it is read, by the end of its name, in bounded memory."""

from __future__ import annotations

import os
import threading
from typing import IO, Any, cast

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
        return cast(IO[bytes], _Zstandard(packed.fileno()))
    raise ValueError(f"{path} has no known end of a compressed file")


class _Zstandard:
    """Frames of Zstandard. The library decompresses from one file to another: to a pipe, in a thread."""

    def __init__(self, packed_fd: int) -> None:
        reading, writing = os.pipe()
        self._output = os.fdopen(reading, "rb")
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._unpack, args=(os.dup(packed_fd), writing), daemon=True)
        self._thread.start()

    def _unpack(self, packed_fd: int, writing: int) -> None:
        from cramjam import File, zstd

        try:
            # The names lead to open files of this process: File takes nothing else.
            target = File(f"/proc/self/fd/{writing}", read=False, write=True, truncate=False)
            zstd.decompress_into(File(f"/proc/self/fd/{packed_fd}"), target)
        except Exception as exc:  # which the reader raises, after the bytes in front
            self._error = exc.with_traceback(None)  # whose frames would keep the pipe open
        finally:
            os.close(packed_fd)
            os.close(writing)

    def readinto(self, view: memoryview) -> int:
        """Read available bytes; 0 at the end. Raises the error of the format there."""
        size = self._output.readinto(view)
        if not size and len(view):
            self._thread.join()
            if self._error is not None:
                raise self._error
        return size

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes; none at the end."""
        buffer = bytearray(size)
        return bytes(buffer[: self.readinto(memoryview(buffer))])

    def close(self) -> None:
        """End the thread, which a closed pipe does, and wait for it."""
        self._output.close()
        self._thread.join()

    def __enter__(self) -> _Zstandard:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
