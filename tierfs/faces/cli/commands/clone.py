"""Define tierfs clone: a new segment with the first bytes of another one, without a copy of bytes."""

from __future__ import annotations

import click

from tierfs.base.words.names import printable
from tierfs.faces.cli import output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.parameter_types import Size
from tierfs.faces.cli.paths import new_name, path_argument
from tierfs.faces.cli.progress import changing
from tierfs.faces.cli.session import Session


@command("clone")
@path_argument("segment")
@path_argument("new")
@click.option(
    "--to",
    "end",
    type=Size(),
    metavar="N",
    help="Offset after the last byte of the clone  [default: the segment's end]",
)
def clone(session: Session, segment: str, new: str, end: int | None) -> None:
    """Make the segment NEW of the bytes of SEGMENT, or of those before the offset N, without copying them.

    Both have the same bytes at the same offsets, in the same files and objects. NEW accepts appends. SEGMENT is
    unchanged, and its writers and readers continue. If NEW is a directory, the clone gets the name of SEGMENT in it. An
    existing name is never replaced.

    Bytes that are not in the cold tier yet are offloaded for both. To share them there too, offload SEGMENT first.
    """
    from tierfs.app import verbs

    with session.open_store() as store:
        source, target = new_name(store, segment, new)
        with changing(session, store, "linking chunks"):
            done = verbs.clone(store, source, target, end=end)
    of, to = printable(done.source), printable(done.target)
    size, chunks = output.size(done.end - done.start), output.count(done.chunks, "chunk")
    if done.successor is not None and end is None:
        session.note(f"{of} continues in {printable(done.successor)}, which is not cloned")
    session.done(done, f"cloned {of} to {to}: {size} in {chunks}, bytes {done.start} to {done.end}")
