"""The owner's part of a standby: a sign of life while one follows the store, also when there is nothing to publish."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable

from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import Fenced, TierfsError
from tierfs.engine.journal import life
from tierfs.engine.journal.life import SignOfLife, StandbyMark
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata.store import MetadataStore, new_id
from tierfs.upkeep.holder import standby_note
from tierfs.upkeep.holder.standby_note import Phase

log = logging.getLogger(__name__)

# Signs within the time that the most impatient standby waits: some may be late, or get lost in an outage of seconds.
_SIGNS = 6

# Names the step, and its failures.
LIFE = "sign of life"


class SignsOfLife:
    """Shows them for one holder. Used by one thread at a time."""

    def __init__(self, metadata: MetadataStore, publisher: Publisher) -> None:
        self._metadata = metadata
        self._publisher = publisher
        self._paths = StorePaths(metadata.path.parent)
        self._hosts: dict[StandbyMark, str] = {}
        """Of the standbys that are known."""
        self._own: set[StandbyMark] = set()
        """Marks of this store itself, from before its takeover."""
        self._shown_s: float | None = None
        self._failing = False

    @property
    def is_due(self) -> bool:
        """Whether one is to be shown now; costs nothing while no standby follows."""
        standbys = set(self._publisher.standbys) - self._own
        if self._shown_s is None or standbys != set(self._hosts):
            return bool(standbys or self._hosts)
        return bool(standbys) and self._metadata.clock.boot_s() - self._shown_s >= _shortest_s(standbys) / _SIGNS

    def show(self) -> None:
        """Show one, and note it for `status`. Raises Fenced.

        Any other failure is logged, and the next tick tries again: a pause that grows would look like death.
        """
        try:
            self._show()
        except Fenced:
            raise
        except TierfsError as exc:
            if not self._failing:
                log.warning("no sign of life reaches the bucket, so a standby may take over: %s", exc)
            self._failing = True
            if self._hosts:  # also of the first one: else `status` would show no problem while none can be written
                self._note()
            return
        if self._failing:
            log.warning("signs of life reach the bucket again")
        self._failing = False

    def _show(self) -> None:
        self._publisher.require_recent_ownership()
        self._see()
        if self._hosts:
            life.show(self._publisher.storage, self._sign())
        self._shown_s = self._metadata.clock.boot_s()
        self._note(boot_id=self._metadata.clock.boot_id(), seen_s=self._shown_s)

    def _note(self, **shown: object) -> None:
        """Note the standbys, and when one was `shown`."""
        standby_note.report(
            self._paths,
            phase=Phase.OWNER if self._hosts else Phase.NONE,
            after_s=_shortest_s(self._hosts),
            other_host=", ".join(sorted(set(self._hosts.values()))),
            **shown,
        )

    def _sign(self) -> SignOfLife:
        with self._metadata.read() as txn:
            store, sums = txn.store, txn.sums
        standbys = tuple(mark.id for mark in self._hosts)
        local_only_bytes = -1 if sums is None else sums.not_offloaded_bytes
        host = socket.gethostname()
        return SignOfLife(store.store_id, store.store_epoch, host, new_id(), standbys, local_only_bytes)

    def _see(self) -> None:
        """Learn the hosts of new standbys, forget those that are gone; remove this store's own mark, as of before."""
        standbys, own_id = set(self._publisher.standbys), standby_note.read(self._paths).id
        for mark in standbys - self._own:
            if mark.id == own_id:
                life.remove_marks(self._publisher.storage, own_id)
                self._own.add(mark)
            elif mark not in self._hosts:
                self._hosts[mark] = life.host_of(self._publisher.storage, mark) or "an unknown host"
                log.info(
                    "a standby on %s takes over after %d s without a sign of life", self._hosts[mark], mark.after_s
                )
        for mark in set(self._hosts) - standbys:
            log.info("the standby on %s follows no more", self._hosts.pop(mark))


def _shortest_s(standbys: Iterable[StandbyMark]) -> int:
    return min((mark.after_s for mark in standbys), default=0)
