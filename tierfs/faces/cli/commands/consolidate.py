"""Define tierfs consolidate: join small neighbouring cold objects, and compress plain ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from tierfs.app.store import Store
from tierfs.faces.cli import output
from tierfs.faces.cli.options import dry_run_option
from tierfs.faces.cli.paths import each_command
from tierfs.faces.cli.progress import perform_shown
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.tiering.consolidate_command import CompressReport


@each_command("consolidate", "[PATH]...")
@dry_run_option("Show the objects to join, and change nothing.")
@click.option("--compress", is_flag=True, help="Also compress plain objects where the policy compression requires it.")
def consolidate(session: Session, store: Store, name: str, dry_run: bool, compress: bool) -> None:
    """Join small neighbouring cold objects of each segment below each PATH; without PATH, of all segments.

    Objects whose bytes are mostly dropped are copied without them. The server copies the bytes where it can;
    each new object is read once and checked. Old objects are deleted after the grace period, so that open files
    stay readable. The policy object_bytes sets the size of objects.

    With --compress, plain objects of segments whose policy compression is auto or zstd are downloaded, compressed and
    uploaded again, also those that are large, and those in packs. Ledgers, adopted objects, and large objects that a
    clone shares stay plain.
    """
    from tierfs.tiering.consolidate_command import CompressReport, ConsolidateReport
    from tierfs.upkeep.holder.verbs import COMPRESS, CONSOLIDATE, DRY_RUN, flags

    options = flags({DRY_RUN: dry_run})
    done: ConsolidateReport
    if compress:
        done = perform_shown(session, store, COMPRESS, name, options)
    else:
        done = perform_shown(session, store, CONSOLIDATE, name, options)
    lines = []
    if done.objects_after:
        objects = f"{output.count(done.objects_after, 'object')} of {output.count(done.objects_before, 'chunk')}"
        made = f"{objects} in {output.count(done.segments, 'segment')}, {output.size(done.bytes)}"
        lines.append(f"{'would make' if dry_run else 'made'} {made}")
    if done.objects_after and not dry_run:
        server, client = output.size(done.bytes - done.client_bytes), output.size(done.client_bytes)
        lines.append(f"  {server} copied by the server, {client} uploaded again")
    if isinstance(done, CompressReport):
        lines += _compressed(done, dry_run=dry_run)
    if done.merged_chunks:
        joined = f"{output.count(done.merged_chunks, 'chunk')} to neighbours in the same object"
        lines.append(f"{'would join' if dry_run else 'joined'} {joined}")
    text = "\n".join(lines) or f"nothing to consolidate below {output.path(name)}"
    session.done({"path": name, "dry_run": dry_run, **output.fields(done)}, text)


def _compressed(done: CompressReport, *, dry_run: bool) -> Iterator[str]:
    """Yield what was compressed, and what was not."""
    plain, objects = output.size(done.plain_bytes), output.count(done.compressed_objects, "object")
    if done.compressed_objects and dry_run:
        yield f"would compress {plain} in {objects}"
    elif done.compressed_objects:
        yield f"compressed {plain} to {output.size(done.stored_bytes)} in {objects}"
    if done.kept_plain_bytes:
        yield f"kept {output.size(done.kept_plain_bytes)} plain: compression saves too little"
