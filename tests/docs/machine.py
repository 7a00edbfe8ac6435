"""A machine of a reader: the directories that the pages name, a home, and what the commands leave behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from pathlib import Path
from subprocess import run

from tests.commands import tierfs
from tests.docs.blocks import ROOT, Reader
from tests.mount.waiting import eventually
from tierfs.base.system.places import Mount, mounts
from tierfs.base.system.store_paths import StorePaths
from tierfs.upkeep.holder import lock

PLACES = ("/srv", "/mnt", "/backup", "/var/lib", "/var/log")
"""Directories of a machine that the pages write to or read; each stands for one below the test's own."""


@dataclass
class Machine:
    """A machine of the reader: its directories, its home and its environment."""

    root: Path
    replace: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for place in PLACES:
            (self.root / place[1:]).mkdir(parents=True)
            self.replace[f"{place}/"] = f"{self.root}{place}/"
        for name in ("home", "work"):
            (self.root / name).mkdir()

    def file(self, path: str, content: str | bytes) -> None:
        """Write a file that the page names; a relative one is in the directory where the reader types."""
        file = self.root / path[1:] if path.startswith("/") else self.root / "work" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)

    def store(self, path: str, *cold: str) -> Path:
        """Make a store with two segments; texts in `cold`, options of `init`, stand for others as in the page."""
        store = self.root / path[1:]
        words = [reduce(lambda word, pair: word.replace(*pair), self.replace.items(), word) for word in cold]
        if "--cold-dir" in words:
            Path(words[-1]).mkdir(parents=True)
        tierfs("-q", "init", *words, store=store)
        for name in ("logs/web", "logs/db/2026-11-20"):
            tierfs("append", name, "--seal", store=store, stdin=b"an ERROR line\n" * 1000)
        return store

    def read(self, page: str, env: Mapping[str, str] | None = None, section: str | None = None) -> None:
        """Type all commands of a page, or of one of its sections."""
        home = {"HOME": str(self.root / "home"), **(env or {})}
        assert Reader(ROOT / page, self.root / "work", replace=self.replace, env=home).run(section)

    def leave(self) -> None:
        """Unmount, and end the daemons, that the page left."""
        for mount in mounts():
            if mount.mountpoint.is_relative_to(self.root):
                # A task that Spark has ended may still have its file open; whoever keeps one is named.
                left = eventually(lambda mount=mount: not why_mounted(mount))
                assert left, f"{mount.mountpoint} is kept by {users_of(mount.mountpoint)}: {why_mounted(mount)}"
        for file in self.root.rglob("store.toml"):
            for held in (StorePaths(file.parent).admin, StorePaths(file.parent).holder):
                holder = lock.current(held)
                if holder is not None:
                    os.kill(holder.pid, signal.SIGTERM)
                    assert eventually(lambda held=held: lock.current(held) is None)


def why_mounted(mount: Mount) -> str:
    """Unmount; return why it is still mounted here, nothing if it is not.

    A test beside this one may have a mount namespace that was copied with the mount: `umount` fails then, though it
    is done here, and the process of the mount goes on until it is told to end.
    """
    umount = ["tierfs", "--store", mount.store, "umount", "--quiet", mount.mountpoint]
    done = run(umount, check=False, capture_output=True, text=True)
    return "" if mount.mountpoint not in {each.mountpoint for each in mounts()} else done.stderr or "no reason"


def users_of(directory: Path) -> list[str]:
    """Return the processes with an open file or their working directory below a directory, and what it is."""
    found = []
    for link in chain(Path("/proc").glob("[0-9]*/cwd"), Path("/proc").glob("[0-9]*/fd/*")):
        with suppress(OSError):  # it has ended, or closed it
            if link.readlink().is_relative_to(directory):
                words = (link.parents[len(link.parts) - 4] / "cmdline").read_bytes().split(b"\0")
                found.append(f"{link} = {link.readlink()} of {words[:3]}")
    return found
