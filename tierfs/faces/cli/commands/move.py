"""Define tierfs move: copy the cold tier to another place, and use that one."""

from __future__ import annotations

import click

from tierfs.base.words.names import printable
from tierfs.faces.cli import output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.place_options import server_options
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import Session

# Names of objects in the text output; --json has all.
_SHOWN = 20


@command("move")
@click.option("--to", "url", required=True, metavar="URL", help="The new place: an existing directory, or a URL.")
@server_options("URL of its S3 server; by default the present one's.")
def move(session: Session, **wanted: str | None) -> None:
    """Move the cold tier: copy it to another place, prove every byte there, and switch.

    Mounts and daemons go on meanwhile and use the new place afterwards; uploads rest for the last step. The server
    copies by itself where both places are its own. Run it again if it was stopped: it continues. The place before is
    left as it is.
    """
    from tierfs.app.move import move as move_store
    from tierfs.engine.metadata.policies import told

    with session.open_store() as store, progress_line(session) as show:
        done = move_store(store, {key: value for key, value in wanted.items() if value is not None}, show)
    copied, before, after = done.copied, told(done.before), told(done.after)
    data = output.fields(done, "before=before.url cold_url=after.url endpoint_url=after.endpoint_url")
    data |= output.fields(copied, "objects bytes server_bytes=by_server_bytes present")
    data |= {"damaged": done.damaged, "left": copied.left}
    parts = [f"{output.count(copied.objects, 'object')}, {output.size(copied.bytes)} copied"]
    if copied.by_server_bytes:
        parts.append(f"{output.size(copied.by_server_bytes)} of them by the server")
    if copied.present:
        parts.append(f"{output.count(copied.present, 'object')} there already")
    session.done(data, f"cold tier: {after}; {', '.join(parts)}")
    for name in done.damaged[:_SHOWN]:
        session.warn(f"{printable(name)} was damaged or missing before, and is so still; see: tierfs check --read")
    for name in copied.left[:_SHOWN]:
        session.warn(f"{printable(name)} was left: no object of a store has such a name")
    if more := len(done.damaged[_SHOWN:]) + len(copied.left[_SHOWN:]):
        session.warn(f"and {more} more of these, which --json lists")
    session.note(
        f"{before} is left as it is, with a note that names the new place; replicas of it need: "
        f"tierfs config cold.url={done.after.url}"
    )
