"""The first page: the same problems, remedies and figures as `tierfs status`, at a cost that many browsers share."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.commands import tierfs
from tests.doubles.manual_clock import ManualClock
from tests.faces.admin.dashboard.conftest import Site, site_of
from tests.faces.cli.drawing.test_top_frame import STATS
from tierfs import open_store
from tierfs.app import health
from tierfs.app.follow.listing import state_page
from tierfs.app.segment_map import Mark
from tierfs.app.status_rows import failure_rows
from tierfs.base.system.mounts import MountState
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.local_files import DiskBytes
from tierfs.engine.metadata.holder_records import FailureRecord
from tierfs.engine.metadata.tables import FAILURES
from tierfs.faces.admin.dashboard import views
from tierfs.faces.admin.dashboard.bars import Rect, disk_bar, map_rects, part
from tierfs.faces.admin.dashboard.mounts import Mounts
from tierfs.tiering.policy import DiskView
from tierfs.upkeep.holder.problem import Gravity


def failing(site: Site, count: int) -> None:
    """Let work of the holder have failed."""
    with site.store.metadata.write() as txn:
        for number in range(count):
            what = f"offload {number:04d}"
            row = FailureRecord(what=what, name=f"<i>{number}", attempts=2, since_ms=1 + number, error="no such bucket")
            txn.put(FAILURES, what.encode(), row)


def test_problems_are_those_of_the_command_worst_first(site: Site) -> None:
    with open_store(str(site.store.path)) as face:
        face.append("s", b"1")
    failing(site, 2)
    seen = health.health_of(site.store, None)
    page = site.page("/")
    told = [(each.text for each in item.all("span")) for item in next(iter(page.all("ol", "problems"))).all("li")]
    assert [tuple(texts) for texts in told] == [
        (problem.gravity.label, problem.text, problem.remedy) for problem in seen.problems
    ]
    assert [problem.gravity for problem in seen.problems] == [Gravity.WARNING, Gravity.WARNING, Gravity.NOTE]
    assert page.by_id("health-title").text == "warning: 2 problems"
    assert next(iter(page.all("title"))).text.startswith("warning: ")
    assert site.page("/logs").by_id("state").text == "warning: 2 problems", "also on the other pages"
    shown = [pair for each in page.all("dl") for pair in each.pairs()]
    assert [row for row in failure_rows(seen.report) if row not in shown] == []


def test_a_store_without_problems_is_ok(site: Site) -> None:
    page = site.page("/")
    assert page.by_id("health-title").text == "ok"
    assert (page.by_id("health").attributes["class"], page.by_id("health").attributes["role"]) == (
        "health ok",
        "status",
    )
    assert page.by_id("failures").text == "Failures and requests No work has failed, and none is requested."
    assert next(link for link in page.all("link")).attributes["href"] == "/assets/ok.svg"


def test_many_failures_come_in_pages(site: Site) -> None:
    failing(site, 250)
    first = site.page("/").by_id("failures")
    assert len(list(first.all("dt"))) == 10
    assert next(iter(first.all("a"))).text == "All 250"
    seen, target = list[str](), "/work"
    while target:
        part_of = site.page(target).by_id("failures")
        seen += [each.text for each in part_of.all("dd")]
        target = next((str(link.attributes["href"]) for link in part_of.all("a")), "")
    assert [text.split(":")[0] for text in seen] == [f"offload <i>{number}" for number in range(250)]


def test_offloads_of_the_server_are_listed_with_their_errors(site: Site) -> None:
    run = site.offloads.begin("")
    while not run.ended_ms:
        os.sched_yield()
    (row,) = site.page("/work").by_id("offloads").rows()
    assert row[:2] == ["/", "done"]


def test_many_browsers_cost_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, asked = list[Any](), list[int]()
    real = views.health_of
    monkeypatch.setattr(views, "health_of", lambda store, unknown: looks.append(unknown) or real(store, unknown))
    clock = ManualClock()
    with site_of(tmp_path, clock) as site:
        monkeypatch.setattr(site.store.owner_watch, "ask", lambda: asked.append(1))
        for _ in range(5):
            site.page("/")
        assert (len(looks), len(asked)) == (1, 1)
        clock.advance(2)
        site.page("/work")
        assert (len(looks), len(asked)) == (2, 1), "the bucket is asked as rarely as for appends"
        clock.advance(site.store.settings.background.owner_check_s)
        site.page("/")
        assert (len(looks), len(asked)) == (3, 2)


def look_at(mounts: Mounts, *alive: Path) -> list[Any]:
    seen = health.StoreHealth.__new__(health.StoreHealth)
    object.__setattr__(seen, "mounts", {str(point): MountState.ALIVE for point in alive} | {"/gone": MountState.DEAD})
    return mounts.look(seen)


def test_the_activity_of_a_mount_is_what_happened_since_the_last_look(tmp_path: Path) -> None:
    (tmp_path / ".tierfs").mkdir()
    clock, document = ManualClock(), tmp_path / ".tierfs/stats"
    document.write_text(json.dumps(STATS))
    mounts = Mounts(clock)
    (first,) = look_at(mounts, tmp_path)
    assert first.activity.fetched.bytes_per_s == MIB, "since the mount began"
    assert [(call.verb, call.requests, call.errors) for call in first.calls] == [("read", 20, 0)]
    more = {"read": {"requests": 24, "bytes": 116 * MIB, "errors": 1}}
    document.write_text(json.dumps(STATS | {"uptime_s": 102.0, "storage": more}))
    clock.advance(1)
    assert look_at(mounts, tmp_path) == [first], "a shorter interval shows only chance"
    clock.advance(1)
    (second,) = look_at(mounts, tmp_path)
    assert second.activity.fetched.bytes_per_s == 8 * MIB
    document.unlink()
    clock.advance(2)
    assert look_at(mounts, tmp_path) == []
    assert look_at(mounts) == []


def test_followed_logs_are_shown_with_their_lag_whatever_their_paths(site: Site, tmp_path: Path) -> None:
    directory = tmp_path / os.fsdecode(b"\xff<b>\n")
    directory.mkdir()
    for name in ("a", "b"):
        (directory / name).write_bytes(b"x" * 999 + b"\n")
    tierfs("follow", directory, "--into", "logs", "--once", store=site.store.path)
    with (directory / "a").open("ab") as file:
        file.write(b"y" * 2048)
    (directory / "b").unlink()
    rows = site.page("/logs").by_id("logs").rows()
    assert [row[0] for row in rows] == ["logs/a", "logs/b"]
    assert rows[0][1].endswith("/\\udcff<b>\\n/a")
    assert [row[2] for row in rows] == ["followed", "gone"]
    assert (rows[0][3][:5], rows[1][3]) == ("2 KiB", "–")
    page = state_page(site.store, "", 1)
    assert page is not None
    assert ([log.segment for log in page.rows], page.next) == (["logs/a"], "logs/a")
    assert [row[0] for row in site.page("/logs?after=logs/a").by_id("logs").rows()] == ["logs/b"]
    assert site.page("/logs?after=logs/b").by_id("logs").text.startswith("No log is followed.")
    assert len(site.page("/logs?after=gone/x").by_id("logs").rows()) == 2


def test_bars_show_the_smallest_part_and_stay_within_their_scale() -> None:
    assert [part(number, 10**9) for number in (0, 1, 10**9, 2 * 10**9, -1)] == [0, 1, 1000, 1000, 0]
    assert part(5, 0) == 0
    limits = DiskView(
        used_bytes=60, local_bytes=20, high_used_bytes=80, high_local_bytes=100, high_unoffloaded_bytes=50
    )
    bar = disk_bar(DiskBytes(size=100, used=60, free=30), limits, 10)
    assert list(bar.rects) == [Rect(0, 200, "local"), Rect(200, 400, "other")]
    assert (bar.high_at, bar.floor_at) == (800, 800)
    cells = [Mark.NOTHING, Mark.GOOD, Mark.GOOD, Mark.LOST, Mark.NOTHING, Mark.ACTIVE]
    assert map_rects(cells) == [Rect(1, 2, "good"), Rect(3, 1, "lost"), Rect(5, 1, "active")]
    assert map_rects([]) == []


PRICES = """currency = "EUR"
source = "<b>list"
as_of = "2026-01-31"
[storage]
STANDARD = 1024.0
[requests]
write = 0.5
"""


def test_the_cost_is_that_of_the_report_with_the_prices_of_a_file_alone(tmp_path: Path) -> None:
    with site_of(tmp_path, settings="[admin]\nprices = 'prices.toml'\n") as site:
        with open_store(str(site.store.path)) as face:
            face.append("s", b"x" * 3 * MIB)
        tierfs("offload", "s", store=site.store.path)
        page = site.page("/cost")
        assert next(iter(page.all("p", "warning-text"))).text.startswith(
            f"{site.store.path}/prices.toml does not exist"
        )
        assert {len(row) for row in page.by_id("bill").rows()} == {2}, "amounts without costs"
        (site.store.path / "prices.toml").write_text(PRICES)
        page = site.page("/cost")
        rows = {row[0]: row[1:] for row in page.by_id("bill").rows()}
        assert rows["storage STANDARD"][1:] == ["1,024.00000 a GiB", "3.00"]
        words = ["--json", "report", "--cost", "--prices", site.store.path / "prices.toml"]
        told = tierfs(*words, store=site.store.path).json
        # Requests are projected by the time of the day; bytes are those of now.
        assert [(name, row[-1]) for name, row in rows.items() if name.startswith("storage")] == [
            (line["what"], "–" if line["cost"] is None else f"{line['cost']:,.2f}")
            for line in told["lines"]
            if line["what"].startswith("storage")
        ]
        assert [*rows] == [line["what"] for line in told["lines"]]
        assert "Total: " in page.by_id("bill").text
        assert " EUR" in page.by_id("bill").text
        assert "Prices: <b>list, 2026-01-31. Without a price: " in page.by_id("bill").text


def test_without_prices_no_cost_is_shown(site: Site) -> None:
    text = site.page("/cost").by_id("bill").text
    assert "tierfs knows no price." in text
    assert "Total" not in text
