"""The bytes of one request of a place, in steps: those of a source to send, and those that came at once."""

from __future__ import annotations

from collections.abc import Iterator

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.words.errors import Unavailable
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.protocol import OnReceived, Source
from tierfs.engine.chunkstore.validate import STEP_BYTES, read_source


def source_steps(path: str, source: Source) -> Iterator[Buffer]:
    """Yield all bytes of a source, in order. Raises DataLoss, naming `path`, when it holds less than it declared."""
    for offset in range(0, source.length_bytes, STEP_BYTES):
        yield read_source(path, source, offset, min(STEP_BYTES, source.length_bytes - offset))


def fill(path: str, data: Buffer, buffer: memoryview, progress: OnReceived | None) -> None:
    """Copy what a request returned at once, in steps. Raises Unavailable when it is not all."""
    view = memoryview(data)
    if len(view) != len(buffer):
        raise Unavailable(f"{printable(path)}: {len(view)} of {len(buffer)} bytes arrived")
    for start in range(0, len(buffer), STEP_BYTES):
        end = min(start + STEP_BYTES, len(buffer))
        buffer[start:end] = view[start:end]
        if progress is not None:
            progress(end)
