"""Outages of the bucket for real, between two hosts: each reaches it by a way of its own that can be cut.

While the standby cannot see the bucket, it never takes over, whether the owner can or not. While only the owner cannot,
it does, and what the owner acknowledged is there. Ways are refused, as by a server that restarts, or silent, as a dead
network is.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests import forked
from tests.commands import tierfs
from tests.mount.waiting import eventually
from tests.reality.standbys import SETTINGS, WITHIN_S, is_owner
from tests.servers.endpoint import S3Endpoint
from tests.servers.gate import Gate, gate_to
from tierfs.base.system.store_paths import StorePaths
from tierfs.upkeep.holder import standby_note
from tierfs.upkeep.holder.standby_note import Phase, StandbyNote

AFTER_S = 3
NEVER_S = 3 * AFTER_S
"""Time in which a standby that counted an outage would have taken over."""

Cut = Callable[[Gate], None]

CUTS: dict[str, Cut] = {"refused": Gate.close, "silent": Gate.silence}


@dataclass
class Host:
    """A store, its daemon, and its way to the bucket."""

    store: Path
    gate: Gate
    daemon: forked.Talking | None = None

    @property
    def note(self) -> StandbyNote:
        return standby_note.read(StorePaths(self.store))

    def start(self) -> None:
        background = (f"background.{each}" for each in SETTINGS)
        tierfs("-q", "config", *background, "cold.read_timeout_s=1s", "cold.connect_timeout_s=1s", store=self.store)
        self.daemon = forked.Talking("tierfs", "--store", self.store, "daemon", "-f")

    def append(self, text: str) -> bool:
        """Append to a segment whose bytes the bucket acknowledges; return whether it did."""
        return self._run("append", "s", stdin=text.encode()).returncode == 0

    def read(self) -> str:
        return self._run("cat", "s").stdout.decode()

    def _run(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a command in a process of its own: what it leaves behind in threads ends with it."""
        environment = {**os.environ, "TIERFS_STORE": str(self.store)}
        return forked.run("tierfs", words, environment, stdin, WITHIN_S)


@dataclass
class Outages:
    """An owner and its standby, and what happened to them."""

    root: Path
    endpoint: S3Endpoint
    seen: Counter[str] = field(default_factory=Counter)

    def run(self) -> Counter[str]:
        """Cut each way, both, and the owner's; return how often each."""
        for name, cut in CUTS.items():
            with self._hosts(self.root / name) as (owner, standby):
                for ways in ([standby.gate], [owner.gate, standby.gate]):
                    self._cut_for_a_while(owner, standby, ways, cut)
                    self.seen[f"{len(ways)} {name}"] += 1
                self._cut_owner(owner, standby, cut)
                self.seen[f"owner {name}"] += 1
        return self.seen

    @contextmanager
    def _hosts(self, root: Path) -> Iterator[tuple[Host, Host]]:
        root.mkdir()
        bucket = f"s3://{self.endpoint.create_bucket()}/p"
        with ExitStack() as opened:
            owner, standby = (
                Host(root / name, opened.enter_context(gate_to(self.endpoint.endpoint_url)))
                for name in ("owner", "standby")
            )
            tierfs("-q", "init", "--bucket", bucket, "--endpoint-url", owner.gate.url, store=owner.store)
            tierfs("-q", "config", "/", "ack=cold", store=owner.store)
            assert owner.append("0")
            owner.start()
            opened.callback(self._end, owner)
            options = ("--standby", "--takeover-after", f"{AFTER_S}s", "--bucket", bucket)
            tierfs("-q", "replica", *options, "--endpoint-url", standby.gate.url, store=standby.store)
            standby.start()
            opened.callback(self._end, standby)
            assert eventually(lambda: standby.note.phase is Phase.FOLLOWS, WITHIN_S), standby.note
            yield owner, standby

    def _end(self, host: Host) -> None:
        host.gate.open()
        assert host.daemon is not None
        host.daemon.end()

    def _cut_for_a_while(self, owner: Host, standby: Host, ways: list[Gate], cut: Cut) -> None:
        for way in ways:
            cut(way)
        assert eventually(lambda: "cannot be reached from here" in standby.note.why, WITHIN_S), standby.note
        assert not eventually(lambda: is_owner(standby.store), NEVER_S), "it took over without a look at the bucket"
        if owner.gate not in ways:
            assert owner.append("1"), "the owner has its bucket"
        with self._stopped(owner):  # its sign of life before the first look would hide that the outage was counted
            for way in ways:
                way.open()
            assert eventually(lambda: standby.note.phase is Phase.FOLLOWS, WITHIN_S), standby.note
        assert not is_owner(standby.store)
        assert owner.append("2"), "it is the owner as before"
        assert eventually(lambda: standby.read() == owner.read(), WITHIN_S)

    @contextmanager
    def _stopped(self, owner: Host) -> Iterator[None]:
        assert owner.daemon is not None
        owner.daemon.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            owner.daemon.send_signal(signal.SIGCONT)

    def _cut_owner(self, owner: Host, standby: Host, cut: Cut) -> None:
        acknowledged = owner.read()
        cut(owner.gate)
        assert eventually(lambda: is_owner(standby.store), WITHIN_S), standby.note
        assert standby.read() == acknowledged
        assert standby.append("3")
        owner.gate.open()
        assert not owner.append("4"), "the bucket is another's"
        assert standby.read() == acknowledged + "3"
