"""Read the statistics that a mount publishes in `.tierfs/stats`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.mounts import asked
from tierfs.base.words import units
from tierfs.base.words.errors import Conflict, NotFound, PermissionDenied, TierfsError, Unavailable
from tierfs.base.words.names import printable

# One document of `.tierfs/stats`; its keys are in docs/monitoring.md.
Stats = Mapping[str, Any]

_STATS = Path(".tierfs/stats")
# Version of the document that this tierfs understands.
_VERSION = 1


@dataclass(frozen=True, slots=True)
class WaitingMount:
    """A mount whose readers wait for a tier that does not answer, or are refused by it."""

    mount: str
    reads: int
    longest_s: float
    why: str
    refused: str = ""
    """Error of the newest read that the cold tier refused."""

    def __str__(self) -> str:
        if not self.reads:
            return f"reads at {printable(self.mount)} are refused: {self.refused}"
        reads = units.count(self.reads, "read")
        return f"{reads} at {printable(self.mount)}, up to {self.longest_s:.0f} s: {self.why}"


def read_stats(point: Path) -> Stats:
    """Return the mount's current statistics.

    Raises NotFound if there is no mount, Unavailable if it does not answer, Conflict for another version's document,
    PermissionDenied for another user's mount.
    """
    try:
        stats = json.loads((point / _STATS).read_bytes())
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise NotFound(f"{point} is not a tierfs mount", remedy="list the mounts: findmnt -t fuse.tierfs") from exc
    except PermissionError as exc:
        raise PermissionDenied(
            f"{point}/.tierfs is for the user who mounted it", remedy="mount it with -o allow_other_control"
        ) from exc
    except OSError as exc:
        raise Unavailable(f"{point} does not answer: {exc.strerror}", remedy=f"remount it at {point}") from exc
    assert isinstance(stats, dict)
    if stats.get("version") != _VERSION:
        raise Conflict(f"{point} was mounted by another version of tierfs", remedy="unmount it and mount it again")
    return stats


def waiting_at(point: str) -> WaitingMount | None:
    """Return the waiting reads of a mount; None if there are none, without an answer, or for another version's."""

    def look() -> dict[str, Any]:
        try:
            return dict(read_stats(Path(point)).get("waiting", {}))
        except TierfsError:
            return {}

    waiting = asked(look) or {}
    refused = waiting.get("refused", "")
    if not waiting.get("reads") and not refused:
        return None
    return WaitingMount(point, waiting["reads"], waiting["longest_s"], waiting["why"], refused)
