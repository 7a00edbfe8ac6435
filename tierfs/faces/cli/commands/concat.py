"""Define tierfs concat: append a sealed segment to another without copying."""

from __future__ import annotations

from tierfs.base.words.names import join, printable, split
from tierfs.faces.cli import output
from tierfs.faces.cli.confirm import ask
from tierfs.faces.cli.group import command
from tierfs.faces.cli.options import yes_option
from tierfs.faces.cli.paths import path_argument
from tierfs.faces.cli.progress import changing
from tierfs.faces.cli.session import Session


@command("concat")
@path_argument("target")
@path_argument("source")
@yes_option
def concat(session: Session, target: str, source: str, yes: bool) -> None:
    """Append all bytes of the sealed segment SOURCE to TARGET, and remove the name SOURCE.

    No byte is copied or moved, in either tier.
    """
    from tierfs.engine.segments import concat as joining

    with session.open_store() as store:
        target, source = (join(split(store.segment_of_path(name))) for name in (target, source))
        to, of = printable(target), printable(source)
        with store.metadata.read() as txn:
            plan = joining.plan(txn, target, source)
        if not yes:
            ask("concat", f"append {output.size(plan.range.length_bytes)} of {of} to {to}, and remove {of}?")
        with changing(session, store, "joining chunks"):
            done = store.engine.concat(target, source)
    appended = done.range
    text = f"removed the empty segment {of}; {to} is unchanged"
    if appended:
        size, chunks = output.size(appended.length_bytes), output.count(done.chunks, "chunk")
        text = f"appended {of} to {to}: {size} in {chunks}, bytes {appended.start} to {appended.end}"
    session.done({"target": target, "source": source, **output.fields(appended), "chunks": done.chunks}, text)
