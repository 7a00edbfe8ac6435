"""Scrapes as promtool takes them, and the alerts that fire for them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.structure.monitoring import ALERTS, Alert, alerts
from tierfs.upkeep.holder.problem import ProblemKind

INSTANCE = "host:9150"
SAMPLES = 130
"""Minutes for which a scrape is repeated: longer than any alert waits."""
WINDOW_MIN = 20
"""More than any expression looks back. promtool evaluates all rules for each minute: it ends soon after the alert."""


def alert_of(name: str) -> Alert:
    (alert,) = (alert for alert in alerts() if name in (alert.name, alert.expression))
    return alert


def of_kind(kind: ProblemKind) -> Alert:
    return alert_of(f'tierfs_problems{{kind="{kind}"}} > 0')


def series(text: str, step: str = "+0") -> Iterator[dict[str, str]]:
    """Yield the metrics of tierfs of a scrape, as promtool takes them, repeated or growing."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("tierfs_") and not sample.name.endswith(("_bucket", "_sum", "_count")):
                labels = {"job": "tierfs", "instance": INSTANCE, **sample.labels}
                name = ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items())
                yield {"series": f"{sample.name}{{{name}}}", "values": f"{sample.value:.0f}{step}x{SAMPLES}"}


def assert_fires(directory: Path, alert: Alert, inputs: list[dict[str, str]], labels: dict[str, str]) -> None:
    expected = {
        "exp_labels": {"severity": alert.severity, "job": "tierfs", "instance": INSTANCE, **labels},
        "exp_annotations": alert.annotations(INSTANCE),
    }
    waits_min = int(alert.held_for[:-1]) * {"m": 1, "h": 60}[alert.held_for[-1]]
    assert waits_min + WINDOW_MIN < SAMPLES
    case = {"eval_time": f"{waits_min + WINDOW_MIN}m", "alertname": alert.name, "exp_alerts": [expected]}
    test = {"interval": "1m", "input_series": inputs, "alert_rule_test": [case]}
    file = directory / "alarm.json"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [test]}))
    done = subprocess.run(["promtool", "test", "rules", file], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
