"""The spending of users: bytes and requests from the cold tier, and the file in which processes share it.

A user's spending fades evenly: all of a budget within an hour. So nobody waits for a full hour, and no user reads more
in a month than 721 budgets. Time is a parameter of the rules.
"""

from __future__ import annotations

import logging
import pwd
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.config import ReadSettings
from tierfs.base.system import shared_json
from tierfs.base.system.clock import Clock
from tierfs.base.words import units
from tierfs.base.words.errors import BudgetSpent

log = logging.getLogger(__name__)

HOUR_S = 3600
_MS_PER_S = 1000

# Users in the file, those who spent the most: more than that is an attack or a mistake (a guess).
_MOST_USERS = 10_000


@dataclass(frozen=True, slots=True)
class HourlyAllowance:
    """The limits of a user per hour; 0: any number."""

    hourly_bytes: int = 0
    hourly_requests: int = 0

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit at all."""
        return bool(self.hourly_bytes or self.hourly_requests)


@dataclass(frozen=True, slots=True)
class Spending:
    """Bytes and requests that a user has spent, at a time."""

    bytes: float = 0.0
    requests: float = 0.0
    at_ms: int = 0

    def faded(self, allowance: HourlyAllowance, now_ms: int) -> Spending:
        """Return what is left of it; a clock that was set back fades nothing."""
        passed = max(0, now_ms - self.at_ms) / _MS_PER_S / HOUR_S
        return Spending(
            max(0.0, self.bytes - passed * allowance.hourly_bytes),
            max(0.0, self.requests - passed * allowance.hourly_requests),
            now_ms,
        )

    def plus(self, more: Spending) -> Spending:
        """Add to it; negative amounts give back."""
        return replace(self, bytes=max(0.0, self.bytes + more.bytes), requests=max(0.0, self.requests + more.requests))

    def wait_s(self, allowance: HourlyAllowance) -> float:
        """Return the time until another request may be made; 0 for now."""
        return max(
            _over_s(self.bytes, allowance.hourly_bytes), _over_s(self.requests + 1, allowance.hourly_requests), 0.0
        )


def _over_s(spent: float, hourly: int) -> float:
    return (spent - hourly) * HOUR_S / hourly if hourly else 0.0


@dataclass(frozen=True, slots=True)
class UserBudget:
    """One user's budget, for reports."""

    uid: int
    bytes: int
    """Spent of `hourly_bytes`."""
    hourly_bytes: int
    """0: no limit."""
    requests: int
    hourly_requests: int
    wait_s: float
    """Time until the next request is allowed; 0 for now."""


def budgets_in(path: Path, settings: ReadSettings, clock: Clock) -> list[UserBudget]:
    """Return the budgets in a store's file, as of its last save; empty without limits."""
    allowance = HourlyAllowance(settings.hourly_bytes, settings.hourly_requests)
    if not allowance.is_limited:
        return []
    now_ms = clock.now_ms()
    return in_order(
        shown_budget(uid, spent.faded(allowance, now_ms), allowance) for uid, spent in read_rows(path).items()
    )


def in_order(rows: Iterable[UserBudget]) -> list[UserBudget]:
    """Sort budgets of users who have spent any: those who wait longest first, then those who spent the most."""
    spending = (row for row in rows if row.bytes or row.requests)
    return sorted(spending, key=lambda row: (-row.wait_s, -row.bytes, -row.requests, row.uid))


def told(budget: UserBudget) -> str:
    """Return what is spent of a budget, and until when nothing is allowed, as a text."""
    parts = []
    if budget.hourly_bytes:
        parts.append(f"{units.size(budget.bytes)} of {units.size(budget.hourly_bytes)}")
    if budget.hourly_requests:
        parts.append(f"{budget.requests:,} of {units.count(budget.hourly_requests, 'request')}")
    wait = f"; the next read is allowed in {units.format_duration(max(1, round(budget.wait_s)))}"
    return f"{' and '.join(parts)}{wait if budget.wait_s else ''}"


def spent_error(budget: UserBudget) -> BudgetSpent:
    """Return the error of a user who has to wait."""
    limits = []
    if budget.hourly_bytes and budget.bytes >= budget.hourly_bytes:
        limits.append(f"{units.size(budget.hourly_bytes)} (read.hourly_bytes)")
    if budget.hourly_requests and budget.requests + 1 > budget.hourly_requests:
        limits.append(f"{units.count(budget.hourly_requests, 'request')} (read.hourly_requests)")
    wait = units.format_duration(max(1, round(budget.wait_s)))
    return BudgetSpent(
        f"user {budget.uid} has read {' and '.join(limits)} from the cold tier in the last hour; the next read is "
        f"allowed in {wait}",
        remedy="wait, or raise the limit: tierfs config read.hourly_bytes=SIZE, then reload the mount (SIGHUP)",
    )


def shown_budget(uid: int, spent: Spending, allowance: HourlyAllowance) -> UserBudget:
    """Return a user's budget, for reports."""
    return UserBudget(
        uid=uid,
        bytes=round(spent.bytes),
        hourly_bytes=allowance.hourly_bytes,
        requests=round(spent.requests),
        hourly_requests=allowance.hourly_requests,
        wait_s=round(spent.wait_s(allowance), 3),
    )


def largest(rows: Mapping[int, Spending], allowance: HourlyAllowance, now_ms: int) -> dict[int, Spending]:
    """Return the rows of users who have spent anything, now, the largest of them."""
    present = {uid: spent.faded(allowance, now_ms) for uid, spent in rows.items()}
    spending = [(uid, spent) for uid, spent in present.items() if spent.bytes or spent.requests]
    return dict(sorted(spending, key=lambda row: (-row[1].bytes, -row[1].requests))[:_MOST_USERS])


def read_rows(path: Path) -> dict[int, Spending]:
    """Return the rows of the file. A missing one has none; a damaged one is reported and replaced."""
    try:
        content = shared_json.read(path)
        rows = {} if content is None else content["users"]
        return {
            int(uid): Spending(float(row["bytes"]), float(row["requests"]), int(row["at_ms"]))
            for uid, row in rows.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
        log.warning("%s cannot be read; the budgets of users start at zero: %s", path, exc)
        return {}


def as_json(rows: Mapping[int, Spending]) -> dict[str, object]:
    """Return the content of the file."""
    return {"users": {str(uid): asdict(spent) for uid, spent in rows.items()}}


def uid_of(name: str) -> int | None:
    """Return the number of a user that is written as a name or number; None, with a warning, for an unknown name."""
    number = units.decimal(name)
    if number is not None:
        return number
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        log.warning("read.exempt_users: there is no user %s", name)
        return None


def name_of(uid: int) -> str:
    """Return the name of a user, or the number. This may ask a server of names: not on a loop."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
