"""How far the segments of followed logs lag their files: from the rows of the store and a look at each file.

Logs of other hosts are not looked at, nor those that got nothing for a week: they may be followed no more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.mounts import asked
from tierfs.base.words.types import MIB
from tierfs.engine.metadata import followed
from tierfs.engine.metadata.followed import GAP_KEPT_MS
from tierfs.engine.metadata.followed_range import FollowedRange
from tierfs.engine.metadata.store import MetadataStore

_NS_PER_MS = 1_000_000
_MS_PER_S = 1000

# A follower looks at each file as often: lines that were written since then are not late.
_LOOK_MS = 5000

# More than is written between two looks at a log (a guess): its lines wait since the last append.
_MANY_BYTES = MIB // 4


@dataclass(frozen=True, slots=True)
class FollowLag:
    """The lag of all followed logs of this host."""

    logs: int = 0
    """Logs that were looked at."""
    lagging: int = 0
    bytes: int = 0
    """Unread bytes of all; without those that were in a file when it was rotated."""
    worst: str = ""
    """The segment with the most of them."""
    worst_bytes: int = 0
    longest_s: float = 0.0
    """Time for which a log has had unread lines, at least."""


def follow_lag(metadata: MetadataStore) -> FollowLag | None:
    """Look at the followed logs; None if their file system does not answer."""
    now_ms = metadata.clock.now_ms()
    with metadata.read() as txn:
        rows = [(name, row) for name, row in followed.newest_files(txn) if _is_looked_at(row, now_ms)]
    return asked(partial(_lag, rows, now_ms)) if rows else FollowLag()


def _is_looked_at(row: FollowedRange, now_ms: int) -> bool:
    return not row.sender and not row.cursor and now_ms - row.committed_ms < GAP_KEPT_MS


def _lag(rows: Iterable[tuple[str, FollowedRange]], now_ms: int) -> FollowLag:
    logs, longest_ms, unread = 0, 0, dict[str, int]()
    for name, row in rows:
        try:
            status = os.stat(row.path)
        except OSError:
            continue  # rotated away, or for the follower to report
        logs += 1
        if size := unread_bytes(row, status):
            unread[name] = size
            longest_ms = max(longest_ms, _waits_ms(row, status, size, now_ms))
    worst = max(unread, key=lambda name: unread[name], default="")
    return FollowLag(logs, len(unread), sum(unread.values()), worst, unread.get(worst, 0), longest_ms / _MS_PER_S)


def unread_bytes(row: FollowedRange, status: os.stat_result) -> int:
    """Return the bytes of a log's file that are not in its segment; of a file that is newer than the row, all."""
    is_same = (status.st_dev, status.st_ino) == (row.device, row.inode) and status.st_size >= row.file_end
    return status.st_size - row.file_end if is_same else status.st_size


def _waits_ms(row: FollowedRange, status: os.stat_result, unread: int, now_ms: int) -> int:
    """Return the time for which there have been unread lines, at least.

    The first of them were written after the last append, and not after the last write. An idle log that just got a
    line is not late, although its last append is long ago.
    """
    if unread >= _MANY_BYTES:
        return max(0, now_ms - row.committed_ms)
    since_ms = now_ms - status.st_mtime_ns // _NS_PER_MS
    return since_ms if since_ms > _LOOK_MS else 0
