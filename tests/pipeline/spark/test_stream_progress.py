"""What the progress of a stream shows, and batches that wait until there is enough for one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledgers import new_ledger
from tests.mount.conftest import append
from tests.pipeline.spark.asked import Asked
from tierfs.app import store as app
from tierfs.pipeline.reader.stream_lag import StreamRate, StreamRates
from tierfs.pipeline.spark import opened_stream
from tierfs.pipeline.spark.errors import TierfsException
from tierfs.pipeline.spark.opened_stream import SmallBatches
from tierfs.pipeline.spark.row_types import RowType

LINE = b"0123456789abcde\n"


def options(store: app.Store, **more: str) -> dict[str, str]:
    return {"store": str(store.path), "path": "/", "recursiveFileLookup": "true", **more}


def lag(stream: Asked) -> dict[str, Any]:
    """As shown after a batch; the difference of offsets is the same number."""
    shown = stream.reader.reportLatestOffset()
    assert shown["bytes"] - stream.at["bytes"] == shown["lag"]["bytes"]
    return dict(shown["lag"])


@pytest.mark.parametrize("limit", ["1", "16", "17", "100", "1000", "1m"])
def test_the_lag_is_what_is_left_at_every_limit(store: app.Store, limit: str) -> None:
    """Of logs that grow, of half-written lines, and after a restart; each byte is in the rows or in the lag."""
    size = 0
    for number in range(3):
        append(store, f"s{number}", LINE * (10 * number), seal=number == 1)
        size += len(LINE) * 10 * number
    append(store, "half", LINE[:5])
    stream = Asked(**options(store, maxBytesPerTrigger=limit))
    read = 0
    for number in range(1000):
        rows = stream.rows()
        read += len(rows) * len(LINE)
        assert lag(stream)["bytes"] == size + 5 - read
        if number == 3:
            append(store, "s0", LINE * 7)
            append(store, "later", LINE * 2, seal=True)
            size += 9 * len(LINE)
        if number == 5:
            at, stream = stream.at, Asked(**options(store, maxBytesPerTrigger=limit))
            stream.at = at
        if not rows and number > 5:
            break
    assert lag(stream) == {"bytes": 5, "segments": 1, "largest": {"segment": "half", "bytes": 5}}


def test_bytes_that_were_read_before_a_concat_are_no_lag(store: app.Store) -> None:
    append(store, "t", LINE)
    append(store, "s", LINE * 3, seal=True)
    stream = Asked(**options(store, minBytesPerTrigger="1g"))
    assert len(stream.rows()) == 4
    store.engine.concat("t", "s")
    append(store, "t", LINE * 2)
    assert stream.rows() == []
    assert lag(stream)["bytes"] == 2 * len(LINE)
    append(store, "t", LINE)
    assert lag(stream)["bytes"] == 2 * len(LINE), "as of the last look"


def test_the_lag_of_entries_counts_them(store: app.Store) -> None:
    new_ledger(store, [b"a", b"", b"bb"])
    stream = Asked(RowType.ENTRIES, **options(store, maxBytesPerTrigger="1"))
    stream.rows()
    assert lag(stream)["entries"] == 3 - 1 - (stream.at["bytes"] > 1)
    shown = stream.reader.reportLatestOffset()
    assert shown["description"].startswith("entries of / (")
    assert shown["description"].endswith(f") in {store.path}")


def test_a_batch_waits_for_the_least_bytes_or_the_delay(store: app.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(opened_stream.time, "monotonic", lambda: now[0])
    append(store, "s", LINE)
    stream = Asked(**options(store, minBytesPerTrigger="48", maxTriggerDelay="10m"))
    assert len(stream.rows()) == 1, "the first batch does not wait"
    append(store, "s", LINE * 2)
    assert stream.rows() == []
    assert lag(stream)["bytes"] == 32
    append(store, "t", LINE)
    assert len(stream.rows()) == 3, "the bytes of all segments count"
    append(store, "t", LINE)
    now[0] = 599.9
    assert stream.rows() == []
    now[0] = 600.0
    assert len(stream.rows()) == 1
    append(store, "t", LINE)
    assert stream.rows() == []
    stream.reader.prepareForTriggerAvailableNow()
    assert len(stream.rows()) == 1, "what is available now is read whatever it is"


@pytest.mark.parametrize("least", [1, 16, 17, 48, 100])
@pytest.mark.parametrize("limit", [1, 16, 17, 48, 100, 1 << 20])
def test_a_least_and_a_limit_of_a_batch(
    store: app.Store, monkeypatch: pytest.MonkeyPatch, least: int, limit: int
) -> None:
    """At each boundary: nothing is read below the least, unless the delay is over; the lag is exact, all is read."""
    if least > limit:
        with pytest.raises(TierfsException, match="minBytesPerTrigger is greater than maxBytesPerTrigger"):
            Asked(**options(store, minBytesPerTrigger=str(least), maxBytesPerTrigger=str(limit)))
        return
    now = [0.0]
    monkeypatch.setattr(opened_stream.time, "monotonic", lambda: now[0])
    given = {"minBytesPerTrigger": str(least), "maxBytesPerTrigger": str(limit), "maxTriggerDelay": "10m"}
    append(store, "s", LINE)
    append(store, "t", LINE)
    stream = Asked(**options(store, **given))
    unread, started_s = 2, -600.0
    for number in range(60):
        rows = stream.rows()
        was_due = unread and (unread * len(LINE) >= least or now[0] - started_s >= 600)
        assert bool(rows) == bool(was_due)
        started_s = now[0] if rows else started_s
        assert len(rows) * len(LINE) <= max(limit, 1) + 2 * len(LINE), "the limit, and a record of each segment"
        unread -= len(rows)
        assert lag(stream)["bytes"] == unread * len(LINE)
        if number < 20:
            append(store, "st"[number % 2], LINE * (number % 4))
            unread += number % 4
        elif not rows:
            if not unread:
                return
            now[0] += 600
    pytest.fail(f"{unread} lines were not read")


def test_the_delay_counts_from_the_last_batch() -> None:
    now = [5.0]
    small = SmallBatches(100, 60.0, lambda: now[0])
    assert small.least_bytes() == 0
    now[0] = 500.0
    assert small.least_bytes() == 0, "nothing was read yet"
    small.start_batch()
    assert small.least_bytes() == 100
    now[0] = 560.0
    assert small.least_bytes() == 0


def test_rates_are_those_of_the_last_minute() -> None:
    now = [0.0]
    rates = StreamRates(lambda: now[0])
    assert rates.note(1000, 0) == StreamRate(0.0, 0.0, 0.0)
    for second in range(1, 200):
        now[0] = float(second)
        rate = rates.note(1000 + 10 * second, 20 * second)
    assert rate == StreamRate(60.0, 10.0, 20.0)
    now[0] = 200.0
    assert rates.note(0, 20 * 199).appended == 0, "what was deleted unread"
