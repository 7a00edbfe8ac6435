"""What a mount tells of itself in `.tierfs/stats`, read by commands."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tierfs.cli import output
from tierfs.cli.drawing.top import Stats
from tierfs.errors import Conflict, NotFound, TierfsError, Unavailable
from tierfs.names import printable
from tierfs.system.mounts import asked

_STATS = Path(".tierfs/stats")
_VERSION = 1
"""Of the document that this tierfs understands."""


@dataclass(frozen=True, slots=True)
class WaitingMount:
    """A mount whose readers wait for a tier that does not answer."""

    mount: str
    reads: int
    longest_s: float
    why: str

    def __str__(self) -> str:
        reads = output.count(self.reads, "read")
        return f"{reads} at {printable(self.mount)}, up to {self.longest_s:.0f} s: {self.why}"


def read_stats(point: Path) -> Stats:
    """The mount's statistics of now. Raises NotFound where there is no mount, Unavailable, Conflict."""
    try:
        found = json.loads((point / _STATS).read_bytes())
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise NotFound(f"{point} is not a tierfs mount", remedy="see what is: findmnt -t fuse.tierfs") from exc
    except OSError as exc:
        raise Unavailable(f"{point} does not answer: {exc.strerror}", remedy=f"mount it again at {point}") from exc
    assert isinstance(found, dict)
    if found.get("version") != _VERSION:
        raise Conflict(f"{point} was mounted by another version of tierfs", remedy="unmount it and mount it again")
    return found


def waiting_at(point: str) -> WaitingMount | None:
    """Whether readers of a mount wait; None too for one without an answer, or with that of another version."""
    found = asked(lambda: _waiting(Path(point))) or {}
    return WaitingMount(point, found["reads"], found["longest_s"], found["why"]) if found.get("reads") else None


def _waiting(point: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = read_stats(point).get("waiting", {})
    except TierfsError:
        return {}
    return found
