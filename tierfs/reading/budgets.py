"""The budgets of users: limits of what each reads from the cold tier per hour, so that no reader causes a bill.

`Budgets` keeps the spending of one process and shares it with the others of the store through a file: each adds what
it spent since it last did. A process that is killed loses what it spent in the last seconds; a file that cannot be
written is reported once, and the process counts alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import trio

from tierfs.base.options.config import ReadSettings
from tierfs.base.system import shared_json
from tierfs.base.system.clock import Clock
from tierfs.base.words.errors import BudgetSpent
from tierfs.reading import spending
from tierfs.reading.spending import HourlyAllowance, Spending, UserBudget, in_order, shown_budget

log = logging.getLogger(__name__)

# How much a process that is killed forgets, as a time (a guess). Each save writes a file of 100 bytes a user.
SAVE_EVERY_S = 5.0


class Budgets:
    """The spending of the users of one process. On the trio loop only, but for `save`."""

    def __init__(self, path: Path, lock_path: Path, clock: Clock) -> None:
        """`path`: the file that processes share, which need not exist."""
        self._path = path
        self._lock_path = lock_path
        self._clock = clock
        self._exempt: frozenset[int] = frozenset()
        self.allowance = HourlyAllowance()
        self.refuses = False
        self._spent: dict[int, Spending] = {}
        self._unsaved: dict[int, Spending] = {}
        self._warned = False
        self._reported: set[int] = set()

    def limit(self, settings: ReadSettings) -> None:
        """Apply the settings; what was spent stays."""
        self.allowance = HourlyAllowance(settings.hourly_bytes, settings.hourly_requests)
        self.refuses = settings.when_spent == "refuse"
        self._exempt = frozenset(
            uid for name in settings.exempt_users.split() if (uid := spending.uid_of(name)) is not None
        )
        if self.allowance.is_limited and not self._spent:
            self._spent = spending.read_rows(self._path)

    def wait_s(self, uid: int) -> float:
        """Return the time until a user may make another request; 0 for now."""
        if not self.allowance.is_limited or uid in self._exempt:
            return 0.0
        return self._present(uid).wait_s(self.allowance)

    def charge(self, uid: int, length_bytes: int, requests: int) -> None:
        """Count a request, or correct it afterwards."""
        if self.allowance.is_limited and uid not in self._exempt:
            self._spent[uid] = self._present(uid).plus(Spending(length_bytes, requests))
            self._unsaved[uid] = _sum(self._unsaved.get(uid), Spending(length_bytes, requests))

    def spent_error(self, uid: int) -> BudgetSpent:
        """Return the error of a user who has to wait."""
        return spending.spent_error(self._shown(uid))

    def require(self, uid: int) -> None:
        """Raise BudgetSpent for a user who has to wait, where that is refused."""
        if self.refuses and self.note_wait(uid):
            raise self.spent_error(uid)

    def note_wait(self, uid: int) -> bool:
        """Return whether a user has to wait; it is logged once, until the user may read again."""
        if not self.wait_s(uid):
            self._reported.discard(uid)
            return False
        if uid not in self._reported:
            self._reported.add(uid)
            log.warning("reads %s: %s", "are refused" if self.refuses else "wait", self.spent_error(uid))
        return True

    def told(self, uid: int) -> str:
        """Return what a user has read of a budget, as a text."""
        is_limited = self.allowance.is_limited and uid not in self._exempt
        return spending.told(self._shown(uid)) if is_limited else "unlimited"

    @property
    def shown(self) -> list[UserBudget]:
        """The budgets of users who have spent any of them, those who wait longest first."""
        return in_order(map(self._shown, list(self._spent)))

    async def keep_saving(self) -> None:
        """Share the spending with other processes, until cancelled."""
        while True:
            await trio.sleep(SAVE_EVERY_S)
            if self._unsaved:
                unsaved, self._unsaved = self._unsaved, {}
                shared = await trio.to_thread.run_sync(self.save, unsaved)
                if shared is None:  # the next save adds it
                    self._unsaved = {
                        uid: _sum(unsaved.get(uid), self._unsaved.get(uid)) for uid in unsaved.keys() | self._unsaved
                    }
                else:
                    later = self._unsaved
                    self._spent = {uid: spent.plus(later.get(uid, Spending())) for uid, spent in shared.items()} | {
                        uid: self._spent[uid] for uid in later.keys() - shared.keys()
                    }

    def finish(self) -> None:
        """Save what is not saved yet, at the end of the process's reading."""
        if self._unsaved:
            unsaved, self._unsaved = self._unsaved, {}
            self.save(unsaved)

    def save(self, unsaved: Mapping[int, Spending]) -> dict[int, Spending] | None:
        """Add what was spent to the file; return the spending of all processes, None if it cannot be written."""
        rows: dict[int, Spending] = {}

        def change() -> object:
            nonlocal rows
            now_ms, rows = self._clock.now_ms(), spending.read_rows(self._path)
            for uid, more in unsaved.items():
                rows[uid] = rows.get(uid, Spending(at_ms=now_ms)).faded(self.allowance, now_ms).plus(more)
            rows = spending.largest(rows, self.allowance, now_ms)
            return spending.as_json(rows)

        try:
            shared_json.update(self._path, self._lock_path, change)
        except OSError as exc:
            if not self._warned:
                log.warning("cannot write %s: %s; this process counts the budgets of users alone", self._path, exc)
            self._warned = True
            return None
        except Exception:  # what reports must not end what serves
            log.exception("cannot add to %s", self._path)
            return None
        self._warned = False
        return rows

    def _present(self, uid: int) -> Spending:
        now_ms = self._clock.now_ms()
        spent = self._spent[uid] = self._spent.get(uid, Spending(at_ms=now_ms)).faded(self.allowance, now_ms)
        return spent

    def _shown(self, uid: int) -> UserBudget:
        return shown_budget(uid, self._present(uid), self.allowance)


def _sum(*amounts: Spending | None) -> Spending:
    """Add amounts, which may be negative: what is given back may be of what was saved already."""
    known = [each for each in amounts if each is not None]
    return Spending(sum(each.bytes for each in known), sum(each.requests for each in known))
