"""tierfs warmup: the disk cache filled ahead of the reads."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tierfs.cli import format
from tierfs.cli.edge import Partial
from tierfs.cli.lazy import command
from tierfs.cli.progress import progress_bar
from tierfs.cli.session import Session
from tierfs.errors import TierfsError
from tierfs.names import printable
from tierfs.parallel import Progress

if TYPE_CHECKING:
    from tierfs.composition.warming import WarmReport


@command("warmup")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
def warmup(session: Session, paths: tuple[str, ...]) -> None:
    """Fill the disk cache with the cold bytes at or below each PATH.

    A mount that has the cache fills it by itself while this reads through it; else this process fills it.
    What the cache holds is not fetched again. With more than fits, the beginning is fetched.
    """
    from tierfs.composition.warming import Warming

    done_bytes = 0
    with session.open_store() as store, progress_bar(session, "warming up") as show:

        def report(progress: Progress) -> None:
            nonlocal done_bytes
            done_bytes = progress.done_bytes
            show(progress)

        names = [store.segment_of_path(path) for path in paths]
        try:
            done = Warming(store, names, report).run()
        except (TierfsError, KeyboardInterrupt) as exc:
            if not done_bytes:
                raise
            went = f"{format.size(done_bytes)} were warmed up"
            raise Partial(exc, went, remedy="to go on, run it again", warmed_bytes=done_bytes) from exc
    _warn(session, done)
    session.done({"paths": names, **asdict(done)}, _summary(", ".join(printable(name) or "/" for name in names), done))


def _warn(session: Session, done: WarmReport) -> None:
    if done.left_out_bytes:
        session.warn(
            f"{format.size(done.cold_bytes)} are cold, and {format.size(done.cold_bytes - done.left_out_bytes)} of "
            "it fit into the disk cache: only the beginning was warmed up"
        )
    if done.lost_bytes:
        session.warn(f"{done.lost_bytes} bytes are lost; see where: tierfs map SEGMENT")


def _summary(where: str, done: WarmReport) -> str:
    skipped = f"{format.size(done.local_bytes)} on the local disk"
    if not done.cold_bytes:
        return f"nothing to warm up at {where}: no cold bytes, {skipped}"
    held = f"the disk cache holds {format.size(done.held_bytes)} of {where}"
    through = f", filled by the mount at {printable(done.mountpoint)}" if done.mountpoint else ""
    return f"{held}, {format.size(done.already_held_bytes)} of it from before{through}; skipped {skipped}"
