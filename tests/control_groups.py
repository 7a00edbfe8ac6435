"""Real control groups with a limit of memory, of the version that this machine counts memory with."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tierfs.base.system import places

_MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """A control group, and the names of its files."""

    path: Path
    limit: str
    peak: str
    events: str

    def command(self, *words: object) -> Sequence[str]:
        """Return a command that runs in the group."""
        return ["sh", "-c", f'echo $$ > "{self.path}/cgroup.procs" && exec "$@"', "sh", *map(str, words)]

    def killed(self) -> int:
        """Return how many processes the kernel killed for want of memory."""
        found = re.search(r"^oom_kill ([0-9]+)$", (self.path / self.events).read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1])

    def peak_bytes(self) -> int:
        """Return the most memory that it had at any time, with the page cache."""
        return int((self.path / self.peak).read_text())


@contextmanager
def limited_to(limit_bytes: int) -> Iterator[ControlGroup]:
    """Make a group that may use so much memory; its processes end before it. Skips where none can be made."""
    name = f"tierfs-test-{uuid.uuid4().hex}"
    group = next(filter(None, (_group(row, name) for row in places.table().values())), None)
    if group is None:
        pytest.skip("control groups do not count memory here")
    try:
        group.path.mkdir()
    except OSError as exc:
        pytest.skip(f"only root of the machine makes control groups: {exc}")
    try:
        (group.path / group.limit).write_text(str(limit_bytes))
        yield group
    finally:
        group.path.rmdir()


def _group(row: places.MountRow, name: str) -> ControlGroup | None:
    path = Path(row.mountpoint, name)
    if row.kind == "cgroup" and _MEMORY in row.options.split(","):
        return ControlGroup(path, "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control")
    subtree = Path(row.mountpoint, "cgroup.subtree_control")
    if row.kind == "cgroup2" and _MEMORY in subtree.read_text().split():
        return ControlGroup(path, "memory.max", "memory.peak", "memory.events")
    return None
