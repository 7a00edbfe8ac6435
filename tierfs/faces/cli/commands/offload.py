"""Define tierfs offload: copy bytes to the cold tier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from tierfs.app.store import Store
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import EntryKind
from tierfs.engine.metadata import directories
from tierfs.faces.cli import output
from tierfs.faces.cli.options import POSITION, dry_run_option
from tierfs.faces.cli.parameter_types import MetadataPair, Size
from tierfs.faces.cli.paths import each_command
from tierfs.faces.cli.progress import perform_shown, progress_line
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.tiering.offload_command import OffloadReport


@each_command("offload", "[PATH]...")
@click.option(
    "--before",
    metavar=f"OFFSET|{POSITION}",
    help="Copy only bytes before this offset of a segment, or this position of a managed ledger.",
)
@click.option("--keep", type=Size(), metavar="SIZE", help="Do not copy the newest bytes of each segment.")
@dry_run_option("Show the bytes to copy, and change nothing.")
@click.option(
    "--metadata",
    metavar="KEY=VALUE",
    multiple=True,
    type=MetadataPair(),
    help="Add user metadata to the objects of this offload (repeatable).",
)
@click.option("--no-wait", is_flag=True, help="Let the mount or daemon do the work, and return at once.")
def offload(
    session: Session,
    store: Store,
    name: str,
    before: str | None,
    keep: int | None,
    metadata: Sequence[tuple[str, str]],
    dry_run: bool,
    no_wait: bool,
) -> None:
    """Copy all bytes below each PATH to the cold tier; without PATH, all bytes of the store.

    On return, every byte acknowledged before the call is in the bucket and recorded in its journal, except bytes of
    open ledgers. If a mount or daemon runs, it does the work; Ctrl-C then stops only the wait.

    --before OFFSET copies every byte of the segment PATH before the offset, with the remaining bytes of the last chunk.
    Of a managed ledger it copies the closed ledgers that end before a position, oldest first, and prints the position
    of the first entry that is not offloaded.

    --keep SIZE keeps at least the newest SIZE bytes only on this disk: of each segment, of a stream across all its
    segments, and of each managed ledger. Chunks and ledgers are copied only as a whole.

    --metadata adds pairs to the user metadata of the new objects, for people and programs that look at the bucket:
    tierfs inspect shows them. Together they have at most 512 bytes. Objects that replace these later do not have them.
    """
    from tierfs.upkeep.holder.perform import request
    from tierfs.upkeep.holder.verbs import KEEP, offload_of

    options = {"--before": before, "--keep": keep, "--no-wait": no_wait or None, "--dry-run": dry_run or None}
    given = [option for option, value in options.items() if value is not None]
    if len(given) > 1:
        raise InvalidRequest(f"{' and '.join(given)} are mutually exclusive", remedy="use only one of them")
    extra = _extra(metadata)
    if dry_run:
        _print_not_cold(session, store, name)
        return
    if before is not None:
        _offload_before(session, store, name, before, extra)
        return
    verb, chosen = offload_of({} if keep is None else {KEEP: str(keep)}, extra)
    if no_wait:
        number = request(store, verb, name, chosen)
        session.done({"path": name, "request": number}, f"request {number}; to see its progress: tierfs status")
        return
    _print_offloaded(session, name, perform_shown(session, store, verb, name, chosen))


def _extra(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the pairs by key. Raises InvalidRequest for a key that is given with two values."""
    extra: dict[str, str] = {}
    for key, value in pairs:
        if extra.setdefault(key, value) != value:
            raise InvalidRequest(f"--metadata {printable(key)} is given twice", remedy="give one value for each key")
    return extra


def _print_not_cold(session: Session, store: Store, name: str) -> None:
    from tierfs.tiering.offload_command import not_cold

    with progress_line(session) as show:
        left = not_cold(store.metadata, name, show)
    kept = f"; {output.size(left.ledger_bytes)} of open ledgers would stay on this disk" if left.ledger_bytes else ""
    what = f"{output.size(left.bytes)} of {output.count(left.segments, 'segment')}"
    text = f"would offload {what} below {output.path(name)}{kept}"
    session.result({"path": name, "dry_run": True, **output.fields(left)}, text)


def _print_offloaded(session: Session, name: str, done: OffloadReport) -> None:
    if done.ledger_bytes:
        session.warn(
            f"{output.size(done.ledger_bytes)} of open ledgers are only on this disk until the ledgers are closed"
        )
    already = output.size(done.already_cold_bytes)
    text = f"nothing to offload below {output.path(name)}; {already} of the local bytes are cold"
    if not done.already_cold_bytes and not done.ledger_bytes:
        text = f"nothing to offload below {output.path(name)}: it has no bytes on this disk"
    if done.objects:
        moved = f"{output.size(done.bytes)} of {output.count(done.segments, 'segment')}"
        text = f"offloaded {moved} in {output.count(done.objects, 'object')}; {already} were already cold"
    session.done({"path": name, **output.fields(done)}, text)


def _offload_before(session: Session, store: Store, name: str, before: str, extra: Mapping[str, str]) -> None:
    from tierfs.engine.segments.positions import Position
    from tierfs.upkeep.holder.verbs import BEFORE, BEFORE_OFFSET, offload_of, offload_prefix_of

    with store.metadata.read() as txn:
        is_segment = directories.must_find(txn, name, "segment or managed ledger").kind is EntryKind.SEGMENT
    if is_segment:
        offset = Size().convert(before, None, click.get_current_context())
        verb, options = offload_of({BEFORE_OFFSET: str(offset)}, extra)
        _print_offloaded(session, name, perform_shown(session, store, verb, name, options))
        return
    try:
        position = Position.parse(before)
    except InvalidRequest as exc:
        remedy = f"{exc.remedy}; an offset is for a single segment; for a directory use --keep SIZE"
        raise InvalidRequest(str(exc), remedy=remedy) from exc
    of_prefix, chosen = offload_prefix_of({BEFORE: str(position)}, extra)
    done = perform_shown(session, store, of_prefix, name, chosen)
    first = f"first not offloaded: {done.first_unoffloaded}" if done.first_unoffloaded else "there are no ledgers"
    text = f"offloaded {output.size(done.bytes)} of {output.count(done.ledgers, 'ledger')}; {first}"
    if not done.ledgers:
        text = f"nothing to offload in {printable(name)}: {output.count(done.already_cold, 'ledger')} cold, {first}"
    session.done({"managed_ledger": name, **output.fields(done)}, text)
