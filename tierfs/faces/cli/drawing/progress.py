"""Draw the progress of a command as one line, and compute its rate. Pure: text from numbers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import ceil

from rich.cells import cell_len, set_cell_size

from tierfs.base.bytes.progress import Progress
from tierfs.base.words.names import printable
from tierfs.base.words.types import MIB
from tierfs.faces.cli import output

# Time over which a rate is taken: a shorter one jumps, a longer one hides that a server became slow.
WINDOW_S = 15.0

# Work of an item in bytes, beside its own ones: a commit, a file or a request, some 0.5 ms at 500 MB/s. By bytes alone
# the share of ten thousand small segments after a large one would stand at 99 % for most of the time.
_ITEM_BYTES = MIB // 4

# Least columns of a name that says something.
_LEAST_NAME = 12

_SEPARATOR = ", "
_ELLIPSIS = "…"


class WorkRate:
    """Rates of the last seconds, and the time left by them. One thread."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Progress]] = deque()

    def add(self, now_s: float, progress: Progress) -> None:
        """Take the progress of a moment; one that begins a stage forgets those before it."""
        before = self._samples[-1][1] if self._samples else progress
        if progress.noun != before.noun or _done(progress) < _done(before) or _kinds(progress) != _kinds(before):
            self._samples.clear()
        self._samples.append((now_s, progress))
        while len(self._samples) > 2 and self._samples[1][0] <= now_s - WINDOW_S:
            self._samples.popleft()

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second; 0 if there were none, or too little time."""
        return self._per_s(lambda progress: progress.done_bytes)

    @property
    def items_per_s(self) -> float:
        """Items per second; 0 if there were none, or too little time."""
        return self._per_s(lambda progress: progress.done_items)

    @property
    def share(self) -> float | None:
        """Part of the work that is done, 0 to 1; None if no total is known."""
        newest = self._samples[-1][1]
        total = _total(newest)
        return min(1.0, _done(newest) / total) if total else None

    @property
    def left_s(self) -> float | None:
        """Time left at the rate of the last seconds; None if it cannot be told."""
        newest = self._samples[-1][1]
        work_per_s, total = self._per_s(_done), _total(newest)
        return max(0, total - _done(newest)) / work_per_s if total and work_per_s > 0 else None

    def _per_s(self, amount: Callable[[Progress], int]) -> float:
        (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        return (amount(last) - amount(first)) / (last_s - first_s) if last_s > first_s else 0.0


def _kinds(progress: Progress) -> tuple[bool, bool]:
    """Tell which totals are known: work is measured in these alone."""
    return progress.total_bytes > 0, progress.total_items > 0


def _done(progress: Progress) -> int:
    return _work(progress, progress.done_bytes, progress.done_items)


def _total(progress: Progress) -> int:
    return _work(progress, progress.total_bytes, progress.total_items)


def _work(progress: Progress, number_bytes: int, items: int) -> int:
    by_bytes, by_items = _kinds(progress)
    return number_bytes * by_bytes + items * _ITEM_BYTES * by_items


def line(progress: Progress, rate: WorkRate, elapsed_s: float, columns: int) -> str:
    """Draw at most `columns` columns: what does not fit is left out from the right, the name is cut at its beginning.

    `[0:12] 34.5%  1,204 / 3,500 segments, 3.2 GiB / 9.3 GiB, 210 MiB/s, 0:25 left, d/e/f.log`
    """
    start = f"[{clock(elapsed_s)}] "
    if rate.share is not None:
        start += f"{int(1000 * rate.share) / 10:.1f}%  "
    drawn, parts = start, _parts(progress, rate)
    for number, part in enumerate(parts):
        longer = drawn + (_SEPARATOR if number else "") + part
        if cell_len(longer) > columns:
            return set_cell_size(drawn, columns).rstrip()
        drawn = longer
    if not progress.item:
        return drawn.rstrip()
    before = drawn + (_SEPARATOR if parts else "")
    room = columns - cell_len(before)
    name = printable(progress.item)
    if cell_len(name) > room:
        if room < _LEAST_NAME:
            return drawn.rstrip()
        name = fitting(name, room)
    return before + name


def clock(length_s: float) -> str:
    """Format a time span: `0:12`, `1:02:03`."""
    minutes, seconds = divmod(int(length_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _parts(progress: Progress, rate: WorkRate) -> list[str]:
    parts = []
    if progress.done_items or progress.total_items:
        total = output.count(progress.total_items, progress.noun)
        items = f"{progress.done_items:,} / {total}"
        parts.append(items if progress.total_items else output.count(progress.done_items, progress.noun))
    if progress.done_bytes or progress.total_bytes:
        done = output.size(progress.done_bytes)
        parts.append(f"{done} / {output.size(progress.total_bytes)}" if progress.total_bytes else done)
    if rate.bytes_per_s >= 1:
        parts.append(f"{output.size(int(rate.bytes_per_s))}/s")
    elif rate.items_per_s >= 1:
        parts.append(f"{int(rate.items_per_s):,}/s")
    if rate.left_s is not None and parts:
        parts.append(f"{clock(ceil(rate.left_s))} left")
    return parts


def fitting(name: str, columns: int) -> str:
    """Return a name in at most `columns` columns: of a longer one its end, which says more than its beginning."""
    if cell_len(name) <= columns:
        return name
    kept, width = len(name), cell_len(_ELLIPSIS)
    while kept and (width := width + cell_len(name[kept - 1])) <= columns:
        kept -= 1
    return _ELLIPSIS + name[kept:]
