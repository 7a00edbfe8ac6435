"""Define tierfs adopt: make segments of objects that other programs wrote, in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tierfs.base.bytes.parallel import Attempts
from tierfs.base.bytes.progress import Meter, OnProgress
from tierfs.base.words import units
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.names import printable
from tierfs.faces.cli import errors, output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.options import dry_run_option, jobs_option
from tierfs.faces.cli.parameter_types import Duration
from tierfs.faces.cli.place_options import server_of, server_options
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.app.adopt import Adopted, Adopter, LedgerOptions
    from tierfs.app.store import Store
    from tierfs.tiering.adoption.adopt import AdoptionOutcome

# In the order in which a place is asked for their marks; objects, which any place has, are last.
_LAYOUTS = ("pulsar", "rocketmq", "pravega", "objects")

# States of which the text differs from their value in JSON.
_STATES = {"linked anew": "relinked", "taken back": "recovered"}


@command("adopt")
@click.argument("places", nargs=-1, metavar="URL|DIR...")
@click.option("--into", required=True, metavar="DIR", help="Target directory in the store.")
@click.option("--as", "layout", type=click.Choice(_LAYOUTS), help="Program that wrote the objects  [default: detect]")
@click.option(
    "--every", type=Duration(least_s=1), metavar="TIME", help="Repeat at this interval (done by the mount or daemon)."
)
@click.option("--stop", is_flag=True, help="Stop repeating adoptions into this directory.")
@server_options()
@dry_run_option("Show the segments, and adopt nothing.")
@jobs_option(8, "Number of parallel reads.")  # one connection delivers a fraction of a server's throughput (guess)
@click.option("--accept-loss", is_flag=True, help="Pulsar: also adopt ledgers whose last entries are missing.")
@click.option(
    "--magic",
    metavar="HEX:HEX",
    help="Pulsar: also adopt objects in PIP-17's first form, with these magic words of index and block.",
)
def adopt(
    session: Session,
    places: tuple[str, ...],
    layout: str | None,
    accept_loss: bool,
    magic: str | None,
    every: float | None,
    stop: bool,
    **options: Any,
) -> None:
    """Make segments of objects that other programs wrote, in place.

    Every byte is read once for its checksum; nothing is copied. The objects are never deleted, overwritten or tagged,
    even if the segments are removed. The names of the segments are below the directory of --into:

    \b
    objects   <its name>                       any objects; also a single one
    rocketmq  <broker>/<topic>/<queue>/<type>  RocketMQ's tiered storage
    pravega   <scope>/<stream>/<segment>       Pravega's long-term storage
    pulsar    <managed ledger>/<ledger id>     ledgers that Pulsar offloaded

    RocketMQ's place can be a part of its storage, in any of its layouts; ledgers are adopted entry by entry. Segments
    of RocketMQ and Pravega keep their offsets. Pravega's own metadata is not read, so facts recorded only there, like
    truncations, are missing. Pulsar's directory can contain a <key>.json next to each object with its user metadata;
    ledgers whose last entries are missing fail, except with --accept-loss.

    Run it again to link new objects: segments grow, and lose the head that their system deleted. With --every the
    mount or daemon of the store does that; status shows it.
    """
    from tierfs.app.adopt import PULSAR, LedgerOptions
    from tierfs.tiering.adoption.ledger_read import magic_words

    if stop:
        if places or every is not None:
            raise click.UsageError("--stop needs --into and no other option")
        _stop(session, options["into"])
        return
    if not places:
        raise click.UsageError("specify a URL or directory to adopt")
    if every is not None and magic is not None:
        raise click.UsageError("--every does not support --magic: the magic words are not stored")
    if accept_loss or magic is not None:
        if layout not in (None, PULSAR):
            raise click.UsageError(f"--accept-loss and --magic are for pulsar, not for {layout}")
        layout = PULSAR
    every_s = None if every is None or options["dry_run"] else round(every)
    _run(session, layout, places, LedgerOptions(accept_loss, magic_words(magic)), every_s, **options)


def _stop(session: Session, into: str) -> None:
    from tierfs.app import adopt_again

    with session.open_store() as store:
        ended = adopt_again.stop(store, store.segment_of_path(into))
    lines = [f"stopped repeating the adoption of {printable(url)}" for url in ended]
    session.done({"stopped": ended}, "\n".join(lines or [f"no adoption into {printable(into)} is repeated"]))


def _run(
    session: Session,
    layout: str | None,
    places: Sequence[str],
    ledgers: LedgerOptions,
    every_s: int | None,
    *,
    into: str,
    dry_run: bool,
    jobs: int,
    **where: str | None,
) -> None:
    from tierfs.app.adopt import Adopter

    directory = next((place for place in places if "://" not in place), None)
    given = next((f"--{key.replace('_', '-')}" for key, value in where.items() if value is not None), None)
    if directory is not None and given is not None:
        raise click.UsageError(f"{given} is only for places in S3, and {printable(directory)} is a directory")
    with session.open_store() as store, progress_line(session) as show:
        grows, server = every_s is not None, server_of(**where)
        into = store.segment_of_path(into)
        adopter = Adopter(store, layout, into, ledgers, grows=grows)
        adoptions = [adopter.plan(adopter.find(place, server), show) for place in places]
        if layout is None:
            session.note(f"adopting as {adopter.kind}, detected by names; to override: --as")
        if every_s is not None:
            from tierfs.app import adopt_again

            adopt_again.require_places(adoptions)
        unpublished = None if dry_run else _adopt(adopter, adoptions, jobs, show)
        for adoption in adoptions if dry_run else ():
            adopter.foresee(adoption)
        if every_s is not None:
            _repeat(session, store, adopter, adoptions, every_s)
    session.note_unpublished(unpublished)
    _report(session, adoptions, dry_run=dry_run)


def _adopt(adopter: Adopter, adoptions: Sequence[Adopted], jobs: int, show: OnProgress) -> TierfsError | None:
    """Adopt the planned segments; return the error of a failed publication. Raises a place's error after all others."""
    plans = [plan for adoption in adoptions for plan in adoption.plan.segments]
    meter, attempts = Meter(show, sum(plan.object_bytes for plan in plans), len(plans)), Attempts()
    for adoption in adoptions:
        with attempts.step():
            adopter.adopt(adoption, jobs, meter)
    unpublished = None
    with attempts.step():
        unpublished = adopter.settle(show)
    attempts.end()
    return unpublished


def _repeat(session: Session, store: Store, adopter: Adopter, adoptions: Sequence[Adopted], every_s: int) -> None:
    from tierfs.app import adopt_again

    for adoption in adoptions:
        adopt_again.remember(store, adopter, adoption, every_s)
    repeats = f"repeats every {units.format_duration(every_s)}"
    session.note(f"{repeats}; to stop it: tierfs adopt --stop --into {adopter.into}")
    if not store.is_held:
        session.note("no mount or daemon is running to repeat it; start one: tierfs daemon, or tierfs mount")


def _report(session: Session, adoptions: Sequence[Adopted], *, dry_run: bool) -> None:
    """Print a line per segment, omitted objects and every error; exit with the first error's code."""
    from tierfs.tiering.adoption.adopt import State

    rows: list[AdoptionOutcome] = []
    for adoption in adoptions:
        rows += adoption.outcomes
    left_out = [out for adoption in adoptions for out in adoption.plan.left_out]
    failed = [refused for adoption in adoptions for refused in adoption.plan.refused]
    failed += [(outcome.plan.name, outcome.error) for outcome in rows if outcome.error is not None]
    data = {
        "dry_run": dry_run,
        "segments": [_segment_data(row) for row in rows],
        "left_out": [output.fields(out, "name=what why") for out in left_out],
        "vanished": [output.fields(gone) for adoption in adoptions for gone in adoption.vanished],
        "errors": errors.parts(failed, "name"),
    }
    states = Counter(_state(row) for row in rows)
    counts = ", ".join(f"{number:,} {state}" for state, number in states.items())
    summary = f"{output.count(len(rows), 'segment')}: {counts}" if rows else "no segments"
    if rows and states.keys() == {State.ALREADY.value}:
        summary = f"nothing new; {summary}"
    session.done(data, "\n".join([*map(_line, rows), summary]))
    if not session.json:
        _warn(session, adoptions, rows)
    errors.report_parts(session, failed)


def _state(row: AdoptionOutcome) -> str:
    return _STATES.get(row.state.value, row.state.value)


def _length(row: AdoptionOutcome) -> int:
    return row.plan.end_offset if row.ledger is None else row.ledger.payload_bytes


def _segment_data(row: AdoptionOutcome) -> dict[str, Any]:
    data = output.fields(row, "segment=plan.name state start_offset=plan.start_offset")
    data |= {"length": _length(row), "objects": row.plan.objects}
    data |= output.fields(row, "new_bytes removed_bytes")
    if row.ledger is not None:
        data |= output.fields(row.ledger, "entries lost_entries")
        data["deviations"] = output.fields(row.ledger.deviations, "count first=messages")
    return data


def _line(row: AdoptionOutcome) -> str:
    from tierfs.tiering.adoption.adopt import State

    size = output.size(_length(row) - row.plan.start_offset)
    objects = output.count(row.plan.objects, "object")
    begins = f" from byte {row.plan.start_offset}" if row.plan.start_offset else ""
    changed = [f" by {output.size(row.new_bytes)}"] if row.state in (State.GROWN, State.WOULD_GROW) else []
    changed += [f", without the first {output.size(row.removed_bytes)}"] if row.removed_bytes else []
    line = f"{printable(row.plan.name)}: {_state(row)}{''.join(changed)}, {size}{begins} in {objects}"
    if row.ledger is None:
        return line
    lost = f"; lost: {output.count(row.ledger.lost_entries, 'entry')}" if row.ledger.lost_entries else ""
    return f"{line}, {output.count(row.ledger.entries, 'entry')}{lost}"


def _warn(session: Session, adoptions: Sequence[Adopted], rows: Sequence[AdoptionOutcome]) -> None:
    from tierfs.tiering.adoption.vanished import described

    for adoption in adoptions:
        if adoption.vanished:
            session.warn(described(adoption.vanished, adoption.place.record))
        for warning in adoption.plan.warnings:
            session.warn(warning)
        reasons = Counter(out.why for out in adoption.plan.left_out)
        for why, number in reasons.items():
            first = next(out.what for out in adoption.plan.left_out if out.why == why)
            session.warn(f"skipped {output.count(number, 'object')}: {why}; the first: {first}")
    for row in rows:
        if row.ledger is not None and row.ledger.deviations.count:
            places = output.count(row.ledger.deviations.count, "place")
            first = row.ledger.deviations.messages[0]
            session.warn(f"{row.plan.name} deviates from Pulsar's format in {places}; the first: {first}")
    session.warn_of_names(row.plan.name for row in rows)
