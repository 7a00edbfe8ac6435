"""tierfs truncate."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tierfs.cli import format
from tierfs.cli.asking import ask, yes_option
from tierfs.cli.lazy import command
from tierfs.cli.parameters import Size
from tierfs.cli.session import Session
from tierfs.names import join, printable, split

if TYPE_CHECKING:
    from tierfs.segments.truncate import Truncation


@command("truncate")
@click.argument("segment")
@click.option("--before", type=Size(), required=True, metavar="OFFSET", help="First one to keep, like 4096 or 64MiB.")
@click.option("--dry-run", is_flag=True, help="Only tell what would go.")
@yes_option
def truncate(session: Session, segment: str, before: int, dry_run: bool, yes: bool) -> None:
    """Drop the bytes of a segment below OFFSET; those that stay keep their offsets.

    Chunks with nothing but dropped bytes go: local files at once, cold objects after a grace period. In
    mounts the name stands for a new file that begins at OFFSET, as after log rotation.
    """
    from tierfs.composition import verbs
    from tierfs.segments import truncate as truncating

    with session.open_store() as store:
        name = join(split(store.segment_of_path(segment)))
        with store.metadata.read() as txn:
            plan = truncating.plan(txn, name, before)
        if dry_run:
            session.result(_data(name, plan, done=False), _describe("would drop", name, plan))
            return
        if not plan.bytes:
            session.done(_data(name, plan, done=True), _describe("dropped", name, plan))
            return
        if not yes:
            ask("truncate", _describe("drop", name, plan) + "?")
        done = verbs.truncate_head(store, name, before)
        late = verbs.settle(store)
    if late is not None:
        session.note(f"the bucket will be told later: {late}")
    session.done(_data(name, done, done=True), _describe("dropped", name, done))


def _describe(verb: str, name: str, what: Truncation) -> str:
    if not what.bytes:
        return f"nothing to do: {printable(name)} begins at {what.start_offset} already"
    local = f"{format.count(what.local_chunks, 'chunk')} of {format.size(what.local_bytes)} local"
    cold = f"{format.count(what.cold_chunks, 'chunk')} of {format.size(what.cold_bytes)} cold"
    return f"{verb} {format.size(what.bytes)} of {printable(name)}, up to {what.start_offset}: {local}, {cold}"


def _data(name: str, what: Truncation, *, done: bool) -> dict[str, object]:
    return {"segment": name, "truncated": done and bool(what.bytes), **asdict(what)}
