"""Make docs/alerts.yml and docs/grafana.json from the program's problems and metrics.

`python -m tests.structure.monitoring` writes both. The words of an alert are those of its row in docs/monitoring.md.
Its annotation `runbook` leads to its day in docs/runbook.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.structure.prose import ROOT, spans, tables
from tierfs.base.system.metrics import MetricKind, MetricName
from tierfs.upkeep.holder.problem import Gravity, ProblemKind

ALERTS, DASHBOARD = ROOT / "docs/alerts.yml", ROOT / "docs/grafana.json"
MONITORING = ROOT / "docs/monitoring.md"
RUNBOOK = ROOT / "docs/runbook.md"
"""An alert leads to the section that has its name."""

LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
HELD_FOR = {Gravity.CRITICAL: "1m", Gravity.WARNING: "5m", Gravity.NOTE: "1h"}
LONGER = {ProblemKind.STUCK: "15m", ProblemKind.SUSPECT: "15m", ProblemKind.OWNER_UNKNOWN: "15m"}
"""Problems that often end by themselves: work is retried, and copies are read again."""
AT_ONCE = {ProblemKind.OWNER_SILENT: "0m"}
"""Problems that began a while ago when they are first shown, and end with a takeover soon after."""
LABELS = {Gravity.CRITICAL: "critical", Gravity.WARNING: "warning", Gravity.NOTE: "info"}

PANEL_WIDTH, PANEL_HEIGHT, DASHBOARD_WIDTH = 12, 8, 24
SCHEMA = 39
"""Version of dashboards since Grafana 10.3."""


@dataclass(frozen=True)
class Alert:
    """One rule of Prometheus."""

    name: str
    expression: str
    held_for: str
    severity: str
    summary: str
    remedy: str

    @property
    def runbook(self) -> str:
        """The section of the runbook that has its name, or else the page with its row."""
        text = RUNBOOK.read_text()
        titles = [section for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:] if f"`{self.name}`" in section]
        if not titles:
            return "docs/monitoring.md#is-everything-well"
        return "docs/runbook.md#" + titles[0].partition("\n")[0].lower().replace(" ", "-")

    def annotations(self, instance: str) -> dict[str, str]:
        return {"description": self.remedy, "runbook": self.runbook, "summary": f"{instance}: {self.summary}"}


OTHERS = (
    Alert("TierfsDown", 'up{job="tierfs"} == 0', "5m", "critical", "no answer from a mount or daemon of tierfs",
          "see whether it runs: tierfs status"),
    Alert("TierfsDiskLow", "tierfs_disk_free_bytes < 2 * tierfs_disk_floor_bytes", "15m", "warning",
          "the disk of the store is almost full; below half of this, appends fail", "free space, or: tierfs evict"),
    Alert("TierfsChecksumFailures", "sum by (job, instance) (increase(tierfs_checksum_failures_total[15m])) > 5", "0m",
          "warning", "blocks with a wrong checksum are read", "check disk and network, then run: tierfs check --read"),
    Alert("TierfsFollowLag", "tierfs_follow_lag_seconds > 3600", "15m", "warning",
          "a followed log has had lines for an hour that are not in its segment",
          "see: tierfs follow --list; start tierfs follow"),
    Alert("TierfsDiskCacheOff", 'tierfs_cache_errors_total{cache="disk"} > 0', "0m", "warning",
          "the disk cache had an error and is switched off", "check its disk, then mount again"),
)  # fmt: skip
"""Alerts that are no problem of a store: a process without an answer, and counters of one process."""


def alerts() -> Iterator[Alert]:
    rows = {
        spans(row[0])[0]: row for title, rows in tables(MONITORING) if title.startswith("| problem |") for row in rows
    }
    for kind in ProblemKind:
        name = "Tierfs" + "".join(word.capitalize() for word in kind.split("-"))
        held_for = (AT_ONCE | LONGER).get(kind, HELD_FOR[kind.gravity])
        means, remedy = (LINK.sub(r"\1", text).replace("`", "") for text in rows[kind][2:4])
        expression = f'tierfs_problems{{kind="{kind}"}} > 0'
        yield Alert(name, expression, held_for, LABELS[kind.gravity], means, remedy)
    yield from OTHERS


def rules() -> str:
    lines = ["# Made by python -m tests.structure.monitoring from docs/monitoring.md.", "groups:", "  - name: tierfs"]
    lines.append("    rules:")
    for alert in alerts():
        annotations = alert.annotations("{{ $labels.instance }}")
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expression)}",
            f"        for: {alert.held_for}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            *(f"          {key}: {json.dumps(text, ensure_ascii=False)}" for key, text in annotations.items()),
        ]
    return "\n".join(lines) + "\n"


PANELS: tuple[tuple[str, str, Mapping[str, str]], ...] = (
    ("Problems", "short", {"{{instance}} {{kind}}": "tierfs_problems > 0"}),
    ("Version and holder", "short", {
        "{{instance}} {{version}}": "tierfs_build_info",
        "{{instance}} holds": "tierfs_holder",
        "{{instance}} is held": "tierfs_held",
        "{{instance}} fenced": "tierfs_fenced",
        "{{instance}} deletions paused": "tierfs_timed_deletions_paused",
    }),
    ("Bytes by tier", "bytes", {
        "{{instance}} {{tier}}": "tierfs_tier_bytes",
        "{{instance}} trash": "tierfs_trash_bytes",
        "{{instance}} garbage": "tierfs_garbage_bytes",
        "{{instance}} counted": "tierfs_cold_used_bytes",
        "{{instance}} quota": "tierfs_cold_quota_bytes",
    }),
    ("Compression", "bytes", {
        "{{instance}} cold objects, {{form}}": "tierfs_cold_object_bytes",
        "{{instance}} saved": "tierfs_compression_saved_bytes",
    }),
    ("Disk of the store", "bytes", {
        "{{instance}} free": "tierfs_disk_free_bytes",
        "{{instance}} floor": "tierfs_disk_floor_bytes",
    }),
    ("Not offloaded", "bytes", {
        "{{instance}} only local": "tierfs_not_offloaded_bytes",
        "{{instance}} due": "tierfs_offload_backlog_bytes",
    }),
    ("Age of the oldest byte that is only local, and of the journal", "s", {
        "{{instance}} byte": "tierfs_offload_backlog_age_seconds",
        "{{instance}} published": "time() - tierfs_last_publish_timestamp_seconds",
        "{{instance}} up": "tierfs_uptime_seconds",
    }),
    ("Stuck work, changes to publish, gaps, segments", "short", {
        "{{instance}} stuck": "tierfs_stuck_tasks",
        "{{instance}} changes": "tierfs_unpublished_changes",
        "{{instance}} gaps": "tierfs_follow_gaps",
        "{{instance}} segments": "tierfs_segments",
    }),
    ("Bytes of followed logs that wait", "bytes", {"{{instance}} {{logs}}": "tierfs_follow_lag_bytes"}),
    ("Time for which lines of a followed log wait", "s", {"{{instance}}": "tierfs_follow_lag_seconds"}),
    ("Standby: silence of the owner, and the time after which it takes over", "s", {
        "{{instance}} silent": "tierfs_standby_silent_seconds",
        "{{instance}} takes over": "tierfs_standby_takeover_seconds",
        "{{instance}} blocked": "tierfs_standby_blocked",
    }),
    ("Lost and suspect bytes", "bytes", {
        "{{instance}} lost": "tierfs_lost_bytes",
        "{{instance}} suspect": "tierfs_suspect_bytes",
    }),
    ("Bytes read", "Bps", {"{{instance}} {{tier}}": "rate(tierfs_read_bytes_total[$__rate_interval])"}),
    ("Reads", "reqps", {
        "{{instance}} {{tier}}": "rate(tierfs_read_requests_total[$__rate_interval])",
        "{{instance}} not preferred: {{tier}}": "rate(tierfs_read_fallbacks_total[$__rate_interval])",
        "{{instance}} hedged": "rate(tierfs_read_hedges_total[$__rate_interval])",
        "{{instance}} refused": "rate(tierfs_read_budget_refusals_total[$__rate_interval])",
    }),
    ("Reads that wait, fetches, handles", "short", {
        "{{instance}} reads that wait": "tierfs_reads_waiting",
        "{{instance}} in flight": "tierfs_fetches_in_flight",
        "{{instance}} queued": "tierfs_fetches_waiting",
        "{{instance}} streams": "tierfs_streams",
        "{{instance}} users without budget": "tierfs_read_budgets_spent",
        "{{instance}} handles": "tierfs_open_handles",
        "{{instance}} sessions": "tierfs_read_sessions",
    }),
    ("Requests of the kernel", "reqps", {
        "{{instance}} {{operation}}": "rate(tierfs_fuse_operations_total[$__rate_interval])",
        "{{instance}} {{operation}} {{errno}}": "rate(tierfs_fuse_errors_total[$__rate_interval])",
    }),
    ("Requests to the cold tier", "reqps", {
        "{{instance}} {{verb}}": "rate(tierfs_storage_requests_total[$__rate_interval])",
        "{{instance}} retried {{verb}}": "rate(tierfs_storage_retries_total[$__rate_interval])",
        "{{instance}} {{verb}} {{error}}": "rate(tierfs_storage_errors_total[$__rate_interval])",
        "{{instance}} not presigned": "rate(tierfs_storage_presigned_fallbacks_total[$__rate_interval])",
    }),
    ("Bytes to and from the cold tier", "Bps", {
        "{{instance}} {{verb}}": "rate(tierfs_storage_bytes_total[$__rate_interval])",
        "{{instance}} composed by {{way}}": "rate(tierfs_storage_composed_bytes_total[$__rate_interval])",
    }),
    ("Bytes read from compressed objects", "Bps", {
        "{{instance}} {{form}}": "rate(tierfs_unpacked_bytes_total[$__rate_interval])",
    }),
    ("Frames unpacked", "cps", {"{{instance}}": "rate(tierfs_unpacked_frames_total[$__rate_interval])"}),
    ("Duration of requests to the cold tier, 95 %", "s", {
        "{{instance}} {{verb}}": "histogram_quantile(0.95, sum by (instance, verb, le) "
        "(rate(tierfs_storage_request_seconds_bucket[$__rate_interval])))",
    }),
    ("Caches", "percentunit", {
        "{{instance}} {{cache}}": "rate(tierfs_cache_hits_total[$__rate_interval]) / (rate(tierfs_cache_hits_total"
        "[$__rate_interval]) + rate(tierfs_cache_misses_total[$__rate_interval]))",
    }),
    ("Memory and caches", "bytes", {
        "{{instance}} fetched": "tierfs_memory_used_bytes",
        "{{instance}} budget": "tierfs_memory_budget_bytes",
        "{{instance}} {{cache}}": "tierfs_cache_bytes",
        "{{instance}} limit of the disk cache": "tierfs_disk_cache_limit_bytes",
        "{{instance}} process": "process_resident_memory_bytes",
    }),
    ("Errors of copies and caches", "short", {
        "{{instance}} wrong checksum: {{source}}": "increase(tierfs_checksum_failures_total[$__rate_interval])",
        "{{instance}} {{cache}}": "increase(tierfs_cache_errors_total[$__rate_interval])",
    }),
    ("Sealed and expired", "short", {
        "{{instance}} sealed": "increase(tierfs_sealed_by_policy_total[$__rate_interval])",
        "{{instance}} bytes expired": "increase(tierfs_retention_bytes_total[$__rate_interval])",
    }),
    ("Processor", "percentunit", {"{{instance}}": "rate(process_cpu_seconds_total[$__rate_interval])"}),
)  # fmt: skip
"""Title, unit, and the queries by their legend."""

SOURCE = {"type": "prometheus", "uid": "${source}"}


def shown_metrics() -> set[str]:
    """Return the metrics that the dashboard shows, by their names in the table."""
    used = {name for _, _, queries in PANELS for query in queries.values() for name in re.findall(r"tierfs_\w+", query)}
    histograms = {f"{name}_bucket": str(name) for name in MetricName if name.kind is MetricKind.HISTOGRAM}
    return {histograms.get(name, name) for name in used}


def panel(number: int, title: str, unit: str, queries: Mapping[str, str]) -> dict[str, Any]:
    row, column = divmod(number, DASHBOARD_WIDTH // PANEL_WIDTH)
    targets = [
        {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": of_instances(query), "legendFormat": legend}
        for index, (legend, query) in enumerate(queries.items())
    ]
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": SOURCE,
        "gridPos": {"x": column * PANEL_WIDTH, "y": row * PANEL_HEIGHT, "w": PANEL_WIDTH, "h": PANEL_HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": targets,
    }


def of_instances(query: str) -> str:
    """Return a query of the instances that are chosen."""
    return re.sub(r"\b((?:tierfs|process)_\w+)", r'\1{instance=~"$instance"}', query)


def dashboard() -> str:
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    instance = {
        "name": "instance",
        "type": "query",
        "datasource": SOURCE,
        "query": "label_values(tierfs_build_info, instance)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
    }
    document = {
        "uid": "tierfs",
        "title": "tierfs",
        "schemaVersion": SCHEMA,
        "tags": ["tierfs"],
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [source, instance]},
        "panels": [panel(number, *row) for number, row in enumerate(PANELS)],
    }
    return json.dumps(document, indent=1) + "\n"


if __name__ == "__main__":
    ALERTS.write_text(rules())
    DASHBOARD.write_text(dashboard())
