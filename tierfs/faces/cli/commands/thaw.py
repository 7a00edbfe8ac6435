"""Define tierfs thaw: request archived objects back, so that they can be read."""

from __future__ import annotations

import click

from tierfs.base.words.names import as_word
from tierfs.faces.cli import output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.paths import paths_argument
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import Session

# A year; S3 has no limit, and a copy that is paid for so long belongs out of the archive.
_MOST_DAYS = 366


@command("thaw")
@paths_argument(metavar="PATH...")
@click.option(
    "--days",
    type=click.IntRange(1, _MOST_DAYS),
    default=3,
    show_default=True,
    help="Number of days for which the objects can be read.",
)
@click.option(
    "--speed",
    type=click.Choice(["standard", "bulk", "expedited"]),
    default="standard",
    show_default=True,
    help="How fast, and at which price: S3 takes hours, up to two days, or minutes.",
)
@click.option("--wait", is_flag=True, help="Wait until all objects can be read.")
def thaw(session: Session, paths: tuple[str, ...], days: int, speed: str, wait: bool) -> None:
    """Request the archived objects below each PATH back, so that their bytes can be read for some days.

    Storage classes such as DEEP_ARCHIVE must restore an object first, which takes minutes to days. Until then reads
    fail with an error. tierfs queries the server about every cold object below PATH. Running the command again shows
    the progress, and prolongs the time of objects that are back. Objects in other classes need nothing.
    """
    from tierfs.app.thaw import Thawing
    from tierfs.engine.chunkstore.protocol import ThawSpeed

    with session.open_store(looks=True) as store, progress_line(session) as show:
        names = store.names_of(*paths)
        thawing = Thawing(store, names, show)
        done = thawing.look(days=days, speed=ThawSpeed(speed))
        if wait:
            done = thawing.wait()
    places = ", ".join(map(output.path, names))
    text = f"nothing to thaw below {places}: all cold objects can be read"
    if done.objects:
        held = f"{output.count(done.objects, 'archived object')}, {output.size(done.bytes)}"
        until = f" until {output.clock_time(done.until_ms)}" if done.until_ms else ""
        text = f"{held} below {places}: all can be read{until}"
        if not done.is_ready:
            waiting, words = done.objects - done.ready, " ".join(as_word(name or "/") for name in names)
            text = (
                f"{held} below {places}: {done.requested} requested now, {done.ready} can be read{until}, "
                f"{waiting} on the way; to wait for them: tierfs thaw --wait {words}"
            )
    session.done({"paths": names, "is_ready": done.is_ready, **output.fields(done)}, text)
