"""Which bytes of a segment chunks cover (invariant 3). Pure; neighbouring chunks take no room."""

from __future__ import annotations

from collections.abc import Iterator

from tierfs.types import ByteRange


class Cover:
    """The union of chunks added in offset order."""

    def __init__(self) -> None:
        self.runs: list[list[int]] = []
        """[start, end), ascending, with gaps between them."""

    def add(self, start: int, end: int) -> None:
        """One more chunk."""
        runs = self.runs
        if runs and start <= runs[-1][1]:
            runs[-1][1] = max(runs[-1][1], end)
        else:
            runs.append([start, end])

    def holes(self, other: Cover, wanted: ByteRange) -> Iterator[ByteRange]:
        """What of `wanted` neither covers."""
        at = wanted.start
        runs = sorted(self.runs + other.runs) if self.runs and other.runs else self.runs or other.runs
        for start, end in runs:
            if start > at:
                hole = ByteRange(at, max(at, min(start, wanted.end)))
                if hole:
                    yield hole
            at = max(at, end)
        if at < wanted.end:
            yield ByteRange(at, wanted.end)
