"""The mount of a standby lives through a takeover: one pause, open files stay, and appends work on its host."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.mount.conftest import serving
from tests.mount.waiting import eventually
from tierfs.app.setup.create import init_store
from tierfs.app.store import open_store
from tierfs.base.system.store_paths import StorePaths
from tierfs.engine.chunkstore.place import Place
from tierfs.upkeep.holder import standby_note
from tierfs.upkeep.holder.standby_note import Phase

pytestmark = [pytest.mark.mount, pytest.mark.timeout(240, method="thread")]

FAST = ("replica_refresh_s=200ms", "owner_check_s=200ms", "tick_s=100ms")
AFTER = "3s"
WITHIN_S = 60.0
"""Most of it is for a busy machine."""


def fast(store: Path) -> None:
    tierfs("-q", "config", *(f"background.{each}" for each in FAST), store=store)


class Hosts:
    """Stores of some hosts, with one bucket."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cold = root / "cold"
        self.cold.mkdir()
        self.owner = root / "owner"
        init_store(self.owner, Place.in_directory(self.cold))
        fast(self.owner)

    @contextmanager
    def daemon(self, store: Path) -> Iterator[int]:
        """Hold a store by a process of its own; its id."""
        tierfs("daemon", store=store)
        pid = tierfs("status", "--json", store=store).json["holder"]["pid"]
        try:
            yield pid
        finally:
            for number in (signal.SIGCONT, signal.SIGKILL):
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    break

    def standby(self, name: str) -> Path:
        tierfs("-q", "replica", "--standby", "--takeover-after", AFTER, "--cold-dir", self.cold, store=self.root / name)
        fast(self.root / name)
        return self.root / name


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path)


def phase(store: Path) -> Phase:
    return standby_note.read(StorePaths(store)).phase


def is_owner(store: Path) -> bool:
    with open_store(store) as opened:
        return not opened.is_replica


def is_held(store: Path) -> bool:
    with open_store(store) as opened:
        return opened.is_held


def append(store: Path, name: str, data: bytes) -> None:
    tierfs("append", name, store=store, stdin=data)


def test_clients_of_a_standby_see_one_pause(hosts: Hosts, tmp_path: Path) -> None:
    append(hosts.owner, "logs/a", b"one\n")
    with ExitStack() as running:
        owner = running.enter_context(hosts.daemon(hosts.owner))
        tierfs("offload", store=hosts.owner)
        standby = hosts.standby("standby")
        (mount := tmp_path / "mnt").mkdir()
        running.enter_context(serving(standby, mount))
        assert eventually(lambda: phase(standby) is Phase.FOLLOWS, WITHIN_S)
        assert "standby" in tierfs("status", store=hosts.owner).out
        out = running.enter_context((tmp_path / "out").open("wb"))
        tail = subprocess.Popen(["tail", "-c", "+1", "-f", mount / "logs/a"], stdout=out)
        running.callback(tail.wait)
        running.callback(tail.kill)
        with (mount / "logs/a").open("rb", buffering=0) as held:
            assert held.read(4) == b"one\n"
            append(hosts.owner, "logs/local", b"only here")
            os.kill(owner, signal.SIGKILL)
            assert eventually(lambda: is_owner(standby), WITHIN_S)
            append(standby, "logs/a", b"two\n")
            tierfs("offload", store=standby)
            assert eventually(lambda: held.read(4) == b"two\n", WITHIN_S)
        assert eventually(lambda: (tmp_path / "out").read_bytes() == b"one\ntwo\n", WITHIN_S)
    assert tierfs("offload", store=hosts.owner, check=False).code == 6
    said = tierfs("status", store=hosts.owner, check=False).out
    assert "cat logs/local --read-priority local-only --from 0 --to 9" in said
    taken = tierfs("standby", "--json", store=standby).json["taken"]
    assert taken["incomplete"] == ["logs/a: open, ends at 4: later bytes, if any"]


def test_an_owner_that_is_stopped_and_continued_is_fenced_and_changes_nothing(hosts: Hosts) -> None:
    with ExitStack() as running:
        owner = running.enter_context(hosts.daemon(hosts.owner))
        tierfs("-q", "config", "cold", "ack=cold", store=hosts.owner)
        append(hosts.owner, "cold/s", b"cold")
        standby = hosts.standby("standby")
        running.enter_context(hosts.daemon(standby))
        assert eventually(lambda: phase(standby) is Phase.FOLLOWS, WITHIN_S)
        append(hosts.owner, "local", b"only here")
        os.kill(owner, signal.SIGSTOP)
        assert eventually(lambda: is_owner(standby), WITHIN_S)
        append(standby, "cold/s", b"er")
        os.kill(owner, signal.SIGCONT)
        assert eventually(lambda: not is_held(hosts.owner), WITHIN_S)
        assert tierfs("cat", "cold/s", store=standby).out == "colder"
        assert tierfs("check", store=standby).code == 0
        again = hosts.standby("again")
        running.enter_context(hosts.daemon(again))
        assert eventually(lambda: phase(again) is Phase.FOLLOWS, WITHIN_S)
