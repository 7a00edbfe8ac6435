"""Define tierfs mv: give segments and directories another name."""

from __future__ import annotations

from tierfs.base.words.names import printable
from tierfs.faces.cli import output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.paths import new_name, path_argument
from tierfs.faces.cli.progress import changing
from tierfs.faces.cli.session import Session


@command("mv")
@path_argument("source")
@path_argument("target")
def mv(session: Session, source: str, target: str) -> None:
    """Rename a segment or a directory, in one commit; no byte is copied or moved, in either tier.

    If TARGET is a directory, SOURCE is moved into it. An existing name is never replaced. A segment takes the later
    segments of its stream along. A directory keeps its policies and all that is below it.

    Readers and writers that have a segment open continue with it. Replicas follow.
    """
    from tierfs.app import verbs

    with session.open_store() as store:
        old, new = new_name(store, source, target)
        with changing(session, store, "renaming"):
            done = verbs.move(store, old, new)
    more = f", with {output.count(done.segments - 1, 'later segment')} of its stream" if done.segments > 1 else ""
    session.done(done, f"{printable(done.source)} is now {printable(done.target)}{more}")
