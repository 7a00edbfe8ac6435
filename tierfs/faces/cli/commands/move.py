"""Define tierfs move: copy the cold tier to another place, and use that one."""

from __future__ import annotations

import click

from tierfs.base.words.names import printable
from tierfs.faces.cli import output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.place_options import server_options
from tierfs.faces.cli.progress import progress_line, prompt_interrupt
from tierfs.faces.cli.session import Session

# Names of objects in the text output; --json has all.
_SHOWN = 20


@command("move")
@click.option("--to", "url", required=True, metavar="URL", help="The new place: an existing directory, or a URL.")
@server_options("URL of its S3 server  [default: that of the current place]")
def move(session: Session, **wanted: str | None) -> None:
    """Move the cold tier: copy it to another place, verify every byte there, and switch.

    Mounts and daemons keep running and then use the new place; uploads pause for the last step. The server copies the
    bytes if it has both places. If the command was stopped, run it again: it continues. The previous place is
    unchanged.
    """
    from tierfs.app.move import move as move_store
    from tierfs.app.move import place_to
    from tierfs.engine.metadata.policies import told

    with session.open_store() as store, progress_line(session) as show, prompt_interrupt(store):
        place = place_to(store, {key: value for key, value in wanted.items() if value is not None})
        done = move_store(store, place, show)
    copied, before, after = done.copied, told(done.before), told(done.after)
    data = output.fields(done, "before=before.url cold_url=after.url endpoint_url=after.endpoint_url")
    data |= output.fields(copied, "objects bytes server_bytes=by_server_bytes present")
    data |= {"damaged": done.damaged, "left": copied.left}
    parts = [f"{output.count(copied.objects, 'object')}, {output.size(copied.bytes)} copied"]
    if copied.by_server_bytes:
        parts.append(f"{output.size(copied.by_server_bytes)} of them by the server")
    if copied.present:
        parts.append(f"{output.count(copied.present, 'object')} already there")
    session.done(data, f"cold tier: {after}; {', '.join(parts)}")
    for name in done.damaged[:_SHOWN]:
        session.warn(f"{printable(name)} was already damaged or missing at the source; see: tierfs check --read")
    for name in copied.left[:_SHOWN]:
        session.warn(f"{printable(name)} was skipped: not a tierfs object name")
    if more := len(done.damaged[_SHOWN:]) + len(copied.left[_SHOWN:]):
        session.warn(f"and {more} more warnings; --json lists all")
    session.note(
        f"{before} is unchanged, except for a note with the new place; replicas of it need: "
        f"tierfs config cold.url={done.after.url}"
    )
