"""Define tierfs consolidate: join small neighbouring cold objects."""

from __future__ import annotations

from tierfs.app.store import Store
from tierfs.faces.cli import output
from tierfs.faces.cli.options import dry_run_option
from tierfs.faces.cli.paths import each_command
from tierfs.faces.cli.progress import perform_shown
from tierfs.faces.cli.session import Session


@each_command("consolidate", "[PATH]...")
@dry_run_option("Show the objects to join, and change nothing.")
def consolidate(session: Session, store: Store, name: str, dry_run: bool) -> None:
    """Join small neighbouring cold objects of each segment below each PATH; without PATH, of all segments.

    Objects whose bytes are mostly dropped are copied without them. The server copies the bytes where it can;
    each new object is read once and checked. Old objects are deleted after the grace period, so that open files
    stay readable. The policy object_bytes sets the size of objects.
    """
    from tierfs.upkeep.holder.verbs import CONSOLIDATE, DRY_RUN, flags

    done = perform_shown(session, store, CONSOLIDATE, name, flags({DRY_RUN: dry_run}))
    lines = []
    if done.objects_after:
        objects = f"{output.count(done.objects_after, 'object')} of {output.count(done.objects_before, 'chunk')}"
        made = f"{objects} in {output.count(done.segments, 'segment')}, {output.size(done.bytes)}"
        lines.append(f"{'would make' if dry_run else 'made'} {made}")
    if done.objects_after and not dry_run:
        server, client = output.size(done.bytes - done.client_bytes), output.size(done.client_bytes)
        lines.append(f"  {server} copied by the server, {client} uploaded again")
    if done.merged_chunks:
        joined = f"{output.count(done.merged_chunks, 'chunk')} to neighbours in the same object"
        lines.append(f"{'would join' if dry_run else 'joined'} {joined}")
    text = "\n".join(lines) or f"nothing to consolidate below {output.path(name)}"
    session.done({"path": name, "dry_run": dry_run, **output.fields(done)}, text)
