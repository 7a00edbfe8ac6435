"""Hosts with one bucket: an owner whose holder shows signs of life, and standbys, each with a clock of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests import verbs
from tests.doubles.manual_clock import ManualClock
from tests.engine.journal.replaying import check_store
from tierfs.app.setup.create import init_store
from tierfs.app.standby import Standby
from tierfs.app.standby_orders import create_standby
from tierfs.app.store import Store, open_store
from tierfs.base.words.types import Ack
from tierfs.engine.chunkstore.place import Place
from tierfs.upkeep.holder import standby_note
from tierfs.upkeep.holder.signs_of_life import SignsOfLife
from tierfs.upkeep.holder.standby_note import StandbyNote
from tierfs.upkeep.holder.work import ColdWork

AFTER_S = 60
LOOK_S = 5
"""Of background.replica_refresh_s."""


@dataclass(slots=True)
class Owner:
    """The owner of the bucket, with what its holder repeats."""

    store: Store
    work: ColdWork
    signs: SignsOfLife

    @classmethod
    def of(cls, store: Store) -> Owner:
        work = store.cold_work()
        return cls(store, work, SignsOfLife(store.metadata, work.publisher))

    def tick(self) -> None:
        """Look who owns the bucket, and show a sign of life if one is due."""
        self.work.publisher.verify_ownership()
        if self.signs.is_due:
            self.signs.show()

    def append(self, name: str, data: bytes, ack: Ack | None = None) -> None:
        append(self.store, name, data, ack)


def append(store: Store, name: str, data: bytes, ack: Ack | None = None) -> None:
    """Append to a segment, acknowledged as wanted."""
    writer = store.engine.open_writer(name, ack=ack)
    try:
        writer.append(data)
    finally:
        store.engine.close_writer(writer)


@dataclass(slots=True)
class Follower:
    """A standby's host."""

    store: Store
    clock: ManualClock
    standby: Standby
    owned: list[bool]

    @property
    def note(self) -> StandbyNote:
        return standby_note.read(self.store.paths)

    @property
    def is_owner(self) -> bool:
        return not self.store.is_replica

    def look(self, times: int = 1, *, owner: Owner | None = None) -> None:
        """Let time pass, and look; an owner that lives shows a sign before each look."""
        for _ in range(times):
            self.clock.advance(LOOK_S)
            if owner is not None:
                clock = owner.store.clock
                assert isinstance(clock, ManualClock)
                clock.advance(LOOK_S)
                owner.tick()
            self.standby.look()
            if self.is_owner:
                return

    def look_until_it_is_time(self) -> None:
        """Look for as long as a silent owner is waited for."""
        self.look(AFTER_S // LOOK_S + 2)


@dataclass(slots=True)
class Hosts:
    """All hosts of a test."""

    root: Path
    owner: Owner
    opened: ExitStack
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(1, 1000)))

    @property
    def place(self) -> Place:
        return Place.in_directory(self.root / "cold")

    def standby(self, check: str = "", after_s: int = AFTER_S) -> Follower:
        """Make a standby on another host, whose clock says something else."""
        number = next(self.numbers)
        path = self.root / f"standby{number}"
        create_standby(path, self.place, after_s, check)
        return self.opened_standby(path, ManualClock(1_600_000_000_000 + number))

    def opened_standby(self, path: Path, clock: ManualClock) -> Follower:
        """Start the process of a standby."""
        store, owned = self.opened.enter_context(open_store(path, clock)), list[bool]()
        return Follower(store, clock, Standby(store, lambda: owned.append(True)), owned)

    def answered(self, check: str = "") -> Follower:
        """Make a standby whose mark the owner answers."""
        follower = self.standby(check)
        follower.look()
        follower.look(owner=self.owner)
        return follower


@contextmanager
def hosts_in(root: Path) -> Iterator[Hosts]:
    """An owner with a bucket in a directory."""
    (root / "cold").mkdir()
    clock = ManualClock()
    init_store(root / "owner", Place.in_directory(root / "cold"), clock)
    with ExitStack() as opened:
        store = opened.enter_context(open_store(root / "owner", clock))
        owner = Owner.of(store)
        owner.append("cold", b"abcd", Ack.COLD)
        yield Hosts(root, owner, opened)


def read(store: Store, name: str) -> bytes:
    parts: list[bytes] = []
    verbs.cat(store, name, None, None, None, lambda data: parts.append(bytes(data)))
    return b"".join(parts)


def check_rows(store: Store) -> None:
    with store.metadata.read() as txn:
        check_store(txn)
