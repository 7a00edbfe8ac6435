"""tierfs concat."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tierfs.cli import format
from tierfs.cli.asking import ask, yes_option
from tierfs.cli.lazy import command
from tierfs.cli.session import Session
from tierfs.names import join, printable, split

if TYPE_CHECKING:
    from tierfs.segments.concat import Concatenation


@command("concat")
@click.argument("target")
@click.argument("source")
@yes_option
def concat(session: Session, target: str, source: str, yes: bool) -> None:
    """Append all bytes of the sealed segment SOURCE to TARGET; the name SOURCE disappears.

    No byte is copied or moved, wherever it lies.
    """
    from tierfs.composition import verbs
    from tierfs.segments import concat as joining

    with session.open_store() as store:
        into, taken = (join(split(store.segment_of_path(name))) for name in (target, source))
        with store.metadata.read() as txn:
            plan = joining.plan(txn, into, taken)
        if not yes:
            size = format.size(plan.range.length_bytes)
            ask("concat", f"append {size} of {printable(taken)} to {printable(into)} and remove that name?")
        done = store.engine.concat(into, taken)
        late = verbs.settle(store)
    if late is not None:
        session.note(f"the bucket will be told later: {late}")
    session.done(_data(into, taken, done), _describe(into, taken, done))


def _describe(target: str, source: str, done: Concatenation) -> str:
    span = done.range
    if not span:
        return f"{printable(source)} was empty and is removed; {printable(target)} is as it was"
    size, chunks = format.size(span.length_bytes), format.count(done.chunks, "chunk")
    return f"appended {printable(source)} to {printable(target)}: {size} in {chunks}, bytes {span.start} to {span.end}"


def _data(target: str, source: str, done: Concatenation) -> dict[str, object]:
    span = done.range
    return {"target": target, "source": source, "start": span.start, "end": span.end, "chunks": done.chunks}
