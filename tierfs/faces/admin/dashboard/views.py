"""Views: what each page shows of a store. Each is read within a bound, however many segments the store has."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from tierfs.app import browse, describe, segment_map, status_rows
from tierfs.app.browse import Page
from tierfs.app.cost_facts import facts_of
from tierfs.app.costs import bill, saved, total, unpriced
from tierfs.app.follow import listing
from tierfs.app.health import StoreHealth, health_of
from tierfs.app.price_file import read_prices
from tierfs.app.store import Store
from tierfs.base.bytes.progress import unseen
from tierfs.base.options import policy
from tierfs.base.words import names
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.types import EntryKind, Tier
from tierfs.engine.metadata import directories, policies
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments import streams
from tierfs.engine.segments.stat import SegmentStat
from tierfs.faces.admin.dashboard.bars import Rect, disk_bar, map_rects, shares
from tierfs.faces.admin.dashboard.mounts import Mounts
from tierfs.faces.admin.offloads import Offloads
from tierfs.tiering.policy import disk_view
from tierfs.upkeep.holder.problem import worst

# Rows of a page of a list.
MOST_ROWS = 100

# Rows of a part of another page, which links to all of them.
_MOST_FIRST = 10

# Chunks of a segment that a page reads; of more it shows samples. 5,000 take 60 ms (measured).
MOST_CHUNKS = 5000
_MOST_CHUNK_ROWS = 50

# Cells of a map: each is two pixels or more on a wide screen.
_CELLS = 500

# Age of a look at a store that is shown again: many browsers cost as much as one.
_LOOK_S = 2.0


class Views:
    """The pages of one store. Thread-safe."""

    def __init__(self, store: Store, offloads: Offloads) -> None:
        self._store = store
        self._offloads = offloads
        self._mounts = Mounts(store.clock)
        self._lock = threading.Lock()
        self._seen: tuple[float, StoreHealth] | None = None
        self._asked: tuple[float, TierfsError | None] | None = None

    def health(self) -> StoreHealth:
        """Return a look at the store that is at most seconds old; the bucket is asked as often as writers ask it."""
        clock = self._store.clock
        with self._lock:
            if self._seen is None or clock.monotonic_s() - self._seen[0] >= _LOOK_S:
                period_s = self._store.settings.background.owner_check_s
                if self._asked is None or clock.monotonic_s() - self._asked[0] >= period_s:
                    unknown = self._store.owner_watch.ask()
                    self._asked = clock.monotonic_s(), unknown
                health = health_of(self._store, self._asked[1])
                self._seen = clock.monotonic_s(), health
            return self._seen[1]

    def frame(self) -> dict[str, Any]:
        """Return what every page shows: the store, its health and the time."""
        seen = self.health()
        return {
            "store": str(self._store.path),
            "gravity": worst(seen.problems).label if worst(seen.problems) else "ok",
            "trouble": sum(1 for problem in seen.problems if problem.gravity),
            "now_ms": self._store.clock.now_ms(),
        }

    def overview(self) -> dict[str, Any]:
        """Return the health of the store and its parts."""
        seen = self.health()
        report = seen.report
        settings, files = self._store.settings, self._store.files
        disk = files.disk_bytes()
        floor_bytes = settings.write.free_space_floor_bytes
        limits = disk_view(disk, report.local.bytes, floor_bytes, settings.background)
        return {
            "problems": seen.problems,
            "report": report,
            "about": status_rows.store_rows(report),
            "tiers": shares(report),
            "disk": disk_bar(disk, limits, floor_bytes),
            "limits": limits,
            "tier_rows": status_rows.tier_rows(report),
            "backlog": status_rows.backlog_rows(report),
            "cold_work": status_rows.cold_work_rows(report),
            "holder": _first(status_rows.holder_rows(report)),
            "mounts": self._mounts.look(seen),
            "mount_rows": _first(status_rows.mount_rows(seen)),
            "failures": status_rows.failure_rows(report)[:_MOST_FIRST],
            "failed": len(status_rows.failure_rows(report)),
        }

    def work(self, after: int) -> dict[str, Any]:
        """Return requests and failures, a page of them after so many, and the offloads of this server."""
        report = self.health().report
        rows = status_rows.failure_rows(report)
        more = len(rows) > after + MOST_ROWS
        return {
            "holder": _first(status_rows.holder_rows(report)),
            "failures": Page(rows[after : after + MOST_ROWS], str(after + MOST_ROWS) if more else None),
            "offloads": self._offloads.newest(MOST_ROWS),
        }

    def browse(self, path: str, after: str, local_from: int, cold_from: int) -> tuple[str, dict[str, Any]]:
        """Return the template of a directory or a segment, and what it shows. Raises NotFound."""
        with self._store.metadata.read() as txn:
            entry = directories.must_find(txn, path)
            shown: dict[str, Any] = {"path": path, "crumbs": list(_crumbs(path)), "policies": _policies(txn, path)}
            if entry.kind is EntryKind.DIRECTORY:
                shown["page"] = browse.directory_page(txn, path, after, MOST_ROWS)
                return "directory.html", shown
            record = directories.segment_by_name(txn, path)
            shown |= self._segment(txn, path, record)
            shown["chunks"] = {
                tier: _chunks(txn, record, tier, start)
                for tier, start in ((Tier.LOCAL, local_from), (Tier.COLD, cold_from))
            }
            return "segment.html", shown

    def ledgers(self, after: int) -> dict[str, Any]:
        """Return ledgers after a segment's id."""
        with self._store.metadata.read() as txn:
            return {"page": browse.ledger_page(txn, after, MOST_ROWS, held=self._store.is_held)}

    def logs(self, after: str) -> dict[str, Any]:
        """Return followed logs after a segment. Raises InvalidRequest for what is no name."""
        name = names.join(names.split(after))
        return {"page": listing.state_page(self._store, name, MOST_ROWS)}

    def cost(self) -> dict[str, Any]:
        """Return what a month takes, and with a file of prices what it costs; an error of the file is shown."""
        facts = facts_of(self._store, replicas=0, lists=False, report=unseen)
        name, prices, error = self._store.settings.admin.prices, None, None
        if name:
            try:
                prices = read_prices(self._store.path / name)
            except TierfsError as exc:
                error = exc
        lines = bill(facts.amounts, prices)
        return {
            "facts": facts,
            "lines": lines,
            "prices": prices,
            "error": error,
            "total": total(lines),
            "saved": saved(facts.amounts, prices),
            "saved_total": total(saved(facts.amounts, prices)),
            "unpriced": [line.what for line in unpriced(lines)] if prices else [],
        }

    def policies(self, after: int) -> dict[str, Any]:
        """Return the places that set policies, after an id."""
        with self._store.metadata.read() as txn:
            return {"page": browse.policy_page(txn, after, MOST_ROWS), "root": _policies(txn, "")}

    def _segment(self, txn: ReadTransaction, path: str, record: SegmentRecord) -> dict[str, Any]:
        is_sampled = sum(record.tier_state(tier).count for tier in Tier) > MOST_CHUNKS
        if is_sampled:
            facts = describe.segment(_outline(txn, path, record), None, (), ())
        else:
            facts = describe.segment_now(self._store, txn, path)
        bars: dict[Tier, list[Rect]] = {
            tier: map_rects(segment_map.bar_of(txn, record, tier, _CELLS, MOST_CHUNKS).cells) for tier in Tier
        }
        return {"record": record, "facts": facts, "sampled": is_sampled, "bars": bars, "cells": _CELLS}


def _first(rows: list[status_rows.Row]) -> list[status_rows.Row]:
    """Return as many rows as a part of a page has, and how many are not shown."""
    hidden = len(rows) - MOST_ROWS
    return [*rows[:MOST_ROWS], *([("…", f"and {hidden:,} more; all of them: tierfs status")] if hidden > 0 else [])]


def _outline(txn: ReadTransaction, path: str, record: SegmentRecord) -> SegmentStat:
    """Return the stat of a segment without what takes a look at each chunk: its checksum, its cold size, its gaps."""
    following = streams.successor(txn, record)
    continued = None if following is None else directories.full_name(txn, following)
    held = policies.in_force(txn, record)
    level = held.values.compression_level
    return SegmentStat(path, record, held.read_priority(), held.compression(), level, None, (), None, continued)


def _chunks(txn: ReadTransaction, record: SegmentRecord, tier: Tier, start: int) -> Page[dict[str, Any]]:
    """Return chunks of a segment from the one at an offset on."""
    rows = describe.chunks_of(txn, record, tier, max(start, record.start_offset))
    return browse.page_of(rows, _MOST_CHUNK_ROWS, lambda row: str(row["end"]))


def _crumbs(path: str) -> Iterator[tuple[str, str]]:
    """Yield the directories above a path, and itself: the name of each, and its path."""
    parts = names.split(path)
    for number, part in enumerate(parts, 1):
        yield part, names.join(parts[:number])


def _policies(txn: ReadTransaction, path: str) -> list[tuple[str, str, str]]:
    """Return the policies in force at a path, with the origin of each."""
    held = policies.at(txn, path)
    return [(key, policy.format(key, each.value), str(each.origin)) for key, each in held.all()]
