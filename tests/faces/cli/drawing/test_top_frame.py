"""The frame that `tierfs top` computes from two snapshots, and its drawing."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tierfs.app.mount_activity import CacheRow, Rate, Unpacked, frame
from tierfs.base.words.types import MIB
from tierfs.faces.cli.drawing.top import ORDERS, draw
from tierfs.faces.cli.drawing.top_view import View, sparkline


def segment(name: str, number: int, **changed: Any) -> dict[str, Any]:
    found = {"id": number, "name": name, "handles": 1, "length": 8 * MIB, "sealed": True, "offset": 0}
    return found | {"window_bytes": 0, "served_from": "cold", "requests": 0, "bytes": 0} | changed


STATS: dict[str, Any] = {
    "version": 1,
    "time_ms": 1_700_000_000_000,
    "uptime_s": 100.0,
    "store": "/srv/store",
    "options": {},
    "operations": {"read": 1000, "lookup": 10},
    "errors": {"read": {"EIO": 1}},
    "reads": {"local": {"requests": 10, "bytes": 10 * MIB}, "cold": {"requests": 90, "bytes": 90 * MIB}},
    "storage": {"read": {"requests": 20, "bytes": 100 * MIB, "errors": 0}},
    "cache": {"memory": {"hits": 50, "misses": 50}},
    "memory": {"budget_bytes": 512 * MIB, "used_bytes": 128 * MIB},
    "fetches": {"in_flight": 3, "waiting": 1},
    "link": {"first_byte_s": 0.0153, "connection_bytes_per_s": 90e6, "streams": 12},
    "handles": 2,
    "sessions": 1,
    "segments_open": 2,
    "segments": [segment("d/one", 1, bytes=MIB, requests=8), segment("two", 2)],
    "disk_cache": None,
    "holder": True,
    "backlog": {"pending_bytes": 3 * MIB, "active_bytes": MIB, "oldest_s": 65.0},
}
"""The statistics of a mount with some activity."""


def later(**changed: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two snapshots, two seconds apart, with what changed in between."""
    return copy.deepcopy(STATS), copy.deepcopy(STATS) | {"uptime_s": 102.0} | changed


def test_rates_are_per_second_and_by_tier() -> None:
    before, after = later(
        operations={"read": 1010, "lookup": 10, "open": 4}, errors={"read": {"EIO": 2}, "open": {"EROFS": 3}}
    )
    after["reads"]["cold"] = {"requests": 100, "bytes": 110 * MIB}
    after["storage"]["read"] = {"requests": 24, "bytes": 116 * MIB, "errors": 0}
    found = frame(before, after)
    assert found.interval_s == 2
    assert found.reads == {"local": Rate(0, 0), "cold": Rate(5, 10 * MIB)}
    assert (found.operations_per_s, found.errors_per_s, found.fetched) == (7, 2, Rate(2, 8 * MIB))
    assert frame(before, before).operations_per_s == 0, "two snapshots at once divide by nothing"
    began_anew = frame(before, after | {"uptime_s": 4.0})
    assert (began_anew.interval_s, began_anew.reads["cold"]) == (4, Rate(25, 27.5 * MIB))
    assert began_anew.caches[0].hit_percent == 50


def test_hits_are_those_of_the_interval() -> None:
    before, after = later()
    assert frame(before, after).caches[0].hit_percent is None
    after["cache"]["memory"] = {"hits": 59, "misses": 51}
    assert frame(before, after).caches == (CacheRow("memory", 9, 1),)
    assert frame(before, after).caches[0].hit_percent == 90
    after["disk_cache"] = {"state": "ok", "used_bytes": 1, "limit_bytes": 2, "hits": 3, "misses": 4}
    assert frame(before, after).caches[1] == CacheRow("disk", 3, 4)
    before["disk_cache"] = after["disk_cache"] | {"hits": 1}
    assert frame(before, after).caches[1] == CacheRow("disk", 2, 0)


def test_the_fastest_segment_is_first_and_one_that_was_opened_anew_starts_at_zero() -> None:
    anew = segment("d/one", 1, bytes=MIB // 2, requests=4)
    others = [segment("two", 2, bytes=4 * MIB, requests=8), segment("new", 3, bytes=2 * MIB, requests=2)]
    rows = {row.name: row.reads for row in frame(*later(segments=[anew, *others])).segments}
    assert list(rows) == ["two", "new", "d/one"]
    assert (rows["d/one"], rows["new"]) == (Rate(2, MIB / 4), Rate(1, MIB))


def test_a_frame_as_text() -> None:
    before, after = later()
    after["reads"]["cold"] = {"requests": 2090, "bytes": 94 * MIB}
    after["cache"]["memory"] = {"hits": 59, "misses": 51}
    read = {"bytes": 4 * MIB, "requests": 8, "offset": 4 * MIB, "window_bytes": 2 * MIB, "sealed": False}
    after["segments"][1] |= read
    assert draw(frame(before, after), "/mnt/logs") == [
        "/mnt/logs  /srv/store, up 1 min 42 s",
        "reads     local 0 B/s (0/s)   cold 2 MiB/s (1,000/s)   0 operations/s   0 failed/s",
        "cold      GET 0 B/s (0/s)   3 in flight, 1 waiting   memory hits 90.0 %",
        "link      12 streams   first byte 15.3 ms   85.8 MiB/s for each connection",
        "memory    128 MiB of 512 MiB   2 handles   1 session",
        "backlog   3 MiB to offload   1 MiB in active chunks   oldest 1 min 5 s",
        "",
        "read/s  tier  handles     at      of  ahead  by  segment",
        " 2 MiB  cold        1  4 MiB  8 MiB+  2 MiB  -   two",
        "   0 B  cold        1    0 B   8 MiB      -  -   d/one",
    ]


def test_a_frame_fits_its_window_and_hides_no_segment_silently() -> None:
    found = frame(*later(segments=[segment(f"s{number}\x1b[2J", number) for number in range(20)], segments_open=1500))
    lines = draw(found, "/mnt", rows=13)
    assert (len(lines), lines[-1]) == (13, "and 1,496 more open segments")
    assert "\x1b" not in "".join(lines)
    assert draw(found, "/mnt")[-1] == "and 1,480 more open segments"
    assert len(draw(found, "/mnt", rows=3)) == 3


UNMEASURED = {"first_byte_s": None, "connection_bytes_per_s": None, "streams": 4}
KEPT = {"pending_bytes": 0, "active_bytes": 0, "oldest_s": 0, "kept_bytes": 7 * MIB}
LIMITS = {
    "bandwidth": 10 * MIB,
    "user_bandwidth": 2 * MIB,
    "hourly_bytes": MIB,
    "hourly_requests": 0,
    "fetches_waiting": 3,
    "budgets": [{"wait_s": 3.5}, {"wait_s": 0.0}],
}
LIMITED = "limits    10 MiB/s in all   2 MiB/s for each user   3 waiting   1 user without budget"
NO_HOLDER = "backlog   only a running mount or daemon knows it"


@pytest.mark.parametrize(
    ("changed", "at", "line"),
    [
        ({"link": UNMEASURED}, 3, "link      4 streams, not measured yet"),
        ({"link": UNMEASURED | {"first_byte_s": 0.001}}, 3, "link      4 streams   first byte 1.0 ms"),
        (
            {"limits": LIMITS},
            4,
            "limits    10 MiB/s in all   2 MiB/s for each user   3 waiting   1 user without budget",
        ),
        ({"backlog": KEPT}, 5, "backlog   0 B to offload   0 B in active chunks   7 MiB kept local"),
        ({"holder": False, "backlog": None}, 5, NO_HOLDER),
        ({"segments": [], "segments_open": 0}, -1, "no open segments"),
    ],
)
def test_what_is_not_known_or_not_there_is_told(changed: dict[str, Any], at: int, line: str) -> None:
    before, after = later(**changed)
    assert draw(frame(before, after), "/mnt")[at] == line


def test_segments_are_in_the_chosen_order() -> None:
    before, after = later()
    after["segments"] = [segment("b", 1, handles=5), segment("c", 2, window_bytes=MIB), segment("a", 3, bytes=MIB)]
    shown = frame(before, after)
    for order, first in {"read": "a", "handles": "b", "ahead": "c", "name": "a"}.items():
        header = [line.split() for line in draw(shown, "/mnt", order=order)]
        row = header[[line[:1] for line in header].index(["read/s"]) + 1]
        assert row[-1] == first, order


def test_a_name_that_does_not_fit_keeps_its_end() -> None:
    before, after = later(segments=[segment("logs/" + "x" * 100 + "/2026-11-20", 1)])
    shown = frame(before, after)
    (line,) = (line for line in draw(shown, "/mnt", columns=100) if line.endswith("2026-11-20"))
    assert (len(line), line.count("\u2026")) == (100, 1)
    assert draw(shown, "/mnt")[-1].count("x") == 100 or any(line.count("x") == 100 for line in draw(shown, "/mnt"))


def test_keys_change_the_order_and_pause() -> None:
    view = View()
    orders = []
    for _ in ORDERS:
        orders.append(view.order)
        view.press(b"s")
    assert (orders, view.order) == ([*ORDERS], "read")
    for key, paused in ((b"p", True), (b"x", True), (b" ", False)):
        view.press(key)
        assert view.paused is paused


def test_the_last_lines_are_the_history_and_the_keys() -> None:
    view, (before, after) = View("handles"), later()
    after["reads"]["local"] = {"requests": 20, "bytes": 30 * MIB}
    for shown in (frame(before, before), frame(before, after)):
        view.add(shown)
    lines = view.lines(shown, "/mnt", 9, 80)
    assert len(lines) == 9
    assert lines[-2] == "reads     \u2588  up to 10 MiB/s"
    assert lines[-1] == "q quit   p pause   s sort (by handles)"


def test_a_sparkline_is_relative_to_its_highest_value() -> None:
    assert sparkline([0, 1, 50, 100]) == " \u2581\u2584\u2588"
    assert sparkline([]) == ""


def test_what_compressed_objects_gave_is_next_to_what_was_received() -> None:
    before, after = later()
    assert "unpacked" not in "".join(draw(frame(before, after), "/m")), "a mount of an older version does not tell"
    after["unpacked"] = {"frames": 160, "stored_bytes": 4 * MIB, "plain_bytes": 20 * MIB}
    found = frame(before, after)
    assert found.unpacked == Unpacked(2 * MIB, 10 * MIB)
    assert "unpacked to 10 MiB/s (ratio 5.00)" in draw(found, "/m")[2]
