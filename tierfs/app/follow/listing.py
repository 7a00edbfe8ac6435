"""The list of followed logs, and how far each segment lags its file: from the store and the files alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tierfs.app.browse import Page, page_of
from tierfs.app.follow import files, messages
from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.clock import SystemClock
from tierfs.base.system.mounts import asked
from tierfs.base.words import names
from tierfs.engine.metadata import followed
from tierfs.engine.metadata.followed_range import FollowedRange

if TYPE_CHECKING:
    from tierfs.app.follow.server import AdminServer
    from tierfs.app.follow.target import LogPlace

_MS_PER_S = 1000

FOLLOWED, ROTATED, GONE, SENT = "followed", "rotated", "gone", "sent"


@dataclass(frozen=True, slots=True)
class LogState:
    """One followed log."""

    path: str
    segment: str
    offset: int
    """Of the file: what is before it is in the segment."""
    segment_offset: int
    """Of the segment: where the bytes of the file end."""
    lag_bytes: int | None
    """None: the file is not there, or has been rotated, so that no look at one file tells; or it is another host's."""
    lag_s: float | None
    """Time since the last append, while there are bytes to append."""
    state: str
    gaps: int
    last_gap: str
    sender: str
    """The host of the file; empty: the host of the store."""


def states(store: Store, below: str = "") -> Iterator[LogState]:
    """Yield the state of each log with a segment in or below a directory, in the order of their segments."""
    with store.metadata.read() as txn:
        rows = sorted(followed.streams(txn))
    prefix = f"{below}/" if below else ""
    yield from _states((row for row in rows if row[0].startswith(prefix)), store.clock.now_ms(), "")


def states_at(server: AdminServer, below: str, sender: str) -> list[LogState]:
    """Return the states of the logs of this host in the store of another one. Raises the server's errors."""
    path = "/v1/followed/" + names.join(names.split(below))
    rows: list[tuple[str, tuple[FollowedRange, ...]]] = []
    after: str | None = ""
    while after is not None:
        page = server.get(path, after=after)
        places: list[tuple[str, LogPlace]] = [
            (each["segment"], messages.place_of_data(each)) for each in page["streams"]
        ]
        rows += [(segment, place.ranges) for segment, place in places if place.ranges[-1:]]
        after = page["next"]
    ours = ((segment, ranges) for segment, ranges in rows if ranges[-1].sender == sender)
    return list(_states(ours, SystemClock().now_ms(), sender))


def _states(rows: Iterable[tuple[str, tuple[FollowedRange, ...]]], now_ms: int, sender: str) -> Iterator[LogState]:
    """Yield the states of logs; `sender` is the host on which this is called."""
    for segment, ranges in rows:
        if (newest := followed.newest_file(ranges)) is not None:
            yield _state(segment, newest, ranges, now_ms, is_here=newest.sender == sender)


def state_page(store: Store, after: str, most: int) -> Page[LogState] | None:
    """Return logs after a segment, by directory; None if their files do not answer within seconds, as on a lost NFS."""
    with store.metadata.read() as txn:
        page = page_of(followed.streams(txn, after=after), most, lambda row: row[0])
    now_ms = store.clock.now_ms()

    def look() -> list[LogState]:
        return list(_states(page.rows, now_ms, ""))

    rows = asked(look)
    return None if rows is None else Page(rows, page.next)


def _state(
    segment: str, newest: FollowedRange, ranges: tuple[FollowedRange, ...], now_ms: int, *, is_here: bool
) -> LogState:
    path = os.fsdecode(newest.path)
    here = files.look_at(path) if is_here else None
    lag_bytes, state = None, FOLLOWED if newest.cursor else GONE if is_here else SENT
    if here is not None:
        is_same = here.identity == (newest.device, newest.inode) and here.size >= newest.file_end
        lag_bytes, state = (here.size - newest.file_end, FOLLOWED) if is_same else (None, ROTATED)
    behind = [each.gap for each in ranges if each.gap]
    return LogState(
        path=path,
        segment=segment,
        offset=newest.file_end,
        segment_offset=newest.segment_end,
        lag_bytes=lag_bytes,
        lag_s=max(0, now_ms - newest.committed_ms) / _MS_PER_S if lag_bytes else 0.0 if lag_bytes == 0 else None,
        state=state,
        gaps=len(behind),
        last_gap=behind[-1] if behind else "",
        sender=newest.sender,
    )
