"""Show removals and the trash, as rm, trim, restore, ls and gc do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tierfs.base.words.names import printable
from tierfs.base.words.types import EntryKind
from tierfs.faces.cli import output
from tierfs.faces.cli.session import QUIET, Session

if TYPE_CHECKING:
    from tierfs.app.store import Store
    from tierfs.engine.segments.delete import Deletion
    from tierfs.engine.segments.trash import Removed

# Of the commands by which a person removes.
now_option = click.option("--now", is_flag=True, help="Delete permanently, without the trash.")


def until(deletion: Deletion) -> str:
    """Return how long what was removed can be restored, as the end of a line."""
    due_ms = deletion.trash_due_ms
    return f"; it can be restored until {output.clock_time(due_ms)}" if due_ms else "; it cannot be restored"


def removal_data(deletion: Deletion) -> dict[str, object]:
    """Return the effect of a removal as JSON data."""
    data = output.fields(deletion)
    return {**data, "trash_until": output.timestamp(data.pop("trash_due_ms"))}


def removed_data(removed: Removed) -> dict[str, Any]:
    """Return what is in the trash as JSON data."""
    sums = "path segments directories bytes local_bytes cold_bytes uncovered_bytes active_bytes"
    times = "removed=removed_ms until=due_ms"
    return output.fields(removed, "id kind=entry.kind") | output.fields(removed.removal, f"{times} {sums}")


def list_removed(session: Session, store: Store, path: str) -> None:
    """Print what is in the trash, at and below a path as it was before."""
    from tierfs.engine.segments import trash

    with store.metadata.read() as txn:
        shown = [each for each in trash.removed(txn) if not path or f"{each.removal.path}/".startswith(f"{path}/")]
    header = ("id", "until (UTC)", "bytes", "local", "cold", "name")
    cells: list[tuple[str, ...]] = [header] if shown and session.verbosity > QUIET else []
    for each in shown:
        sums = each.removal
        sizes = map(output.size, (sums.bytes, sums.local_bytes, sums.cold_bytes))
        cells.append((str(each.id), output.clock_time(sums.due_ms), *sizes, shown_name(each)))
    session.rows(map(removed_data, shown), output.lines(cells, ">", "<", ">10", ">10", ">10", "<"))


def shown_name(removed: Removed) -> str:
    """Return the name before the removal, with the number of segments of a directory."""
    path = printable(removed.removal.path)
    if removed.entry.kind is EntryKind.SEGMENT:
        return path
    return f"{path}/ ({output.count(removed.removal.segments, 'segment')})"
