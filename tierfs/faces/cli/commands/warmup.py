"""Define tierfs warmup: fill the disk cache with cold bytes."""

from __future__ import annotations

import click

from tierfs.base.bytes.progress import Progress
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.names import printable
from tierfs.faces.cli import output
from tierfs.faces.cli.errors import Partial
from tierfs.faces.cli.group import command
from tierfs.faces.cli.paths import paths_argument
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import Session


@command("warmup")
@paths_argument(metavar="PATH...")
@click.option("--wait", is_flag=True, help="Wait for archived objects that tierfs thaw has requested back.")
def warmup(session: Session, paths: tuple[str, ...], wait: bool) -> None:
    """Fill the disk cache with the cold bytes at or below each PATH.

    If a mount has the cache, the mount fills it; otherwise this process does.
    Bytes in the cache are not fetched again. If the cache is too small, only the first bytes are fetched.
    """
    from tierfs.app.fill_cache import warm_up

    done_bytes = 0
    with session.open_store() as store, progress_line(session) as show:

        def report(progress: Progress) -> None:
            nonlocal done_bytes
            done_bytes = progress.done_bytes
            show(progress)

        names = store.names_of(*paths)
        if wait:
            from tierfs.app.thaw import Thawing

            thawing = Thawing(store, names, show)
            thawing.look()
            thawing.wait()
        try:
            done = warm_up(store, names, report)
        except (TierfsError, KeyboardInterrupt) as exc:
            if not done_bytes:
                raise
            progress = f"{output.size(done_bytes)} were warmed up"
            raise Partial(exc, progress, remedy="to continue, run it again", warmed_bytes=done_bytes) from exc
    if done.left_out_bytes:
        cold, fit = output.size(done.cold_bytes), output.size(done.cold_bytes - done.left_out_bytes)
        session.warn(f"the disk cache is too small: only the first {fit} of {cold} cold bytes were warmed up")
    if done.lost_bytes:
        session.warn(f"{done.lost_bytes} bytes are lost; to locate them: tierfs info --map SEGMENT")
    places, skipped = ", ".join(map(output.path, names)), f"{output.size(done.local_bytes)} on the local disk"
    text = f"nothing to warm up at {places}: no cold bytes, {skipped}"
    if done.cold_bytes:
        cached = f"the disk cache has {output.size(done.held_bytes)} of {places}"
        through = f", filled by the mount at {printable(done.mountpoint)}" if done.mountpoint else ""
        text = f"{cached}, {output.size(done.already_held_bytes)} of it from earlier{through}; skipped {skipped}"
    session.done({"paths": names, **output.fields(done)}, text)
