"""docs/alerts.yml and docs/grafana.json are those of the program, and real tools accept them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.structure.monitoring import ALERTS, DASHBOARD, RUNBOOK, alerts, dashboard, rules, shown_metrics
from tierfs.base.system.metrics import MetricName
from tierfs.upkeep.holder.problem import ProblemKind


def test_alerts_and_dashboard_are_the_programs() -> None:
    if (ALERTS.read_text(), DASHBOARD.read_text()) != (rules(), dashboard()):
        pytest.fail("run: python -m tests.structure.monitoring", pytrace=False)


def test_promtool_accepts_the_alerts() -> None:
    done = subprocess.run(["promtool", "check", "rules", ALERTS], check=False, capture_output=True, text=True)
    assert (done.returncode, f"{len(list(alerts()))} rules found" in done.stdout) == (0, True), done


def test_alerts_use_metrics_that_exist_and_each_problem_has_one() -> None:
    text = ALERTS.read_text()
    assert set(re.findall(r"tierfs_\w+", text)) - set(MetricName) == set()
    assert re.findall(r'tierfs_problems\{kind=\\"([a-z-]+)\\"\}', text) == list(ProblemKind)


def test_the_dashboard_shows_every_metric_and_no_panel_covers_another() -> None:
    assert shown_metrics() == set(MetricName)
    panels = json.loads(DASHBOARD.read_text())["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        targets = panel["targets"]
        assert len({target["refId"] for target in targets}) == len(targets)
        for target in targets:
            assert 'instance=~"$instance"' in target["expr"]


def test_promtool_accepts_each_query_of_the_dashboard(tmp_path: Path) -> None:
    queries = [
        target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*")
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for target in panel["targets"]
    ]
    recorded = [{"record": f"q{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "queries.json"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": recorded}]}))
    done = subprocess.run(["promtool", "check", "rules", file], check=False, capture_output=True, text=True)
    assert (done.returncode, f"{len(queries)} rules found" in done.stdout) == (0, True), done


def test_alerts_of_the_runbook_exist_and_all_but_notes_and_mounts_lead_there() -> None:
    named = re.findall(r"`(Tierfs\w+)`", RUNBOOK.read_text())
    assert len(named) == len(set(named)), "an alert leads to one day"
    known = {alert.name: alert for alert in alerts()}
    assert set(named) - set(known) == set()
    elsewhere = {name for name, alert in known.items() if not alert.runbook.startswith("docs/runbook.md#")}
    mounts = {"TierfsStaleMount", "TierfsSilentMount", "TierfsCoveredMount"}
    of_their_rows = {
        "TierfsNoHolder",
        "TierfsUnreadableRecords",
        "TierfsNotAllowed",
        "TierfsOverdue",
        "TierfsGap",
        "TierfsDiskCacheOff",
    } | {"TierfsReadBudget", "TierfsFollowLag"}
    notes = {name for name, alert in known.items() if alert.severity == "info"}
    assert elsewhere - notes == mounts | of_their_rows
