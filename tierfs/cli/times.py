"""The options that take a time, and the places in segments that they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tierfs import units
from tierfs.cli.session import Session
from tierfs.clock import SystemClock
from tierfs.names import printable

if TYPE_CHECKING:
    from tierfs.app.store import Store
    from tierfs.metadata.records import SegmentRecord
    from tierfs.reading.times import TimePlace
    from tierfs.types import ByteRange, ReadPriority


class Time(click.ParamType[int]):
    """A moment in milliseconds since the epoch, like 2h, for two hours ago, or 2026-01-31T12:00Z."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse the typed text."""
        try:
            return units.parse_time(str(value), SystemClock().now_ms())
        except ValueError as exc:
            self.fail(str(exc), param, ctx)


since_option = click.option(
    "--since", type=Time(), metavar="TIME", help="Begin with what was written since; 2h: two hours ago."
)
until_option = click.option("--until", type=Time(), metavar="TIME", help="End before what was written then or later.")


def place_of(store: Store, record: SegmentRecord, time_ms: int, priority: ReadPriority | None = None) -> TimePlace:
    """Return the place of a time in a segment. Raises the errors of reads."""
    from tierfs.reading.times import offset_at, reading_ranges

    with reading_ranges(store.reader, record, priority) as read:
        return offset_at(store.metadata, record, time_ms, read)


def bounds(
    session: Session,
    store: Store,
    record: SegmentRecord,
    since: int | None,
    until: int | None,
    priority: ReadPriority | None,
) -> ByteRange:
    """Return the bytes of a segment from one time to another; with those of the whole chunks where only these have
    times, which a note says."""
    from tierfs.reading.times import TimesOf
    from tierfs.types import ByteRange

    first = None if since is None else place_of(store, record, since, priority)
    after = None if until is None else place_of(store, record, until, priority)
    places = [place for place in (first, after) if place is not None]
    if any(place.times_of is TimesOf.CHUNKS for place in places):
        session.note(
            f"{printable(record.name)}: by the times of its chunks, with the other bytes of the first and last"
        )
    start = record.start_offset if first is None else first.offset
    end = record.length if after is None else after.end_offset
    return ByteRange(start, max(start, end))
