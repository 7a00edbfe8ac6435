"""Define tierfs init: create a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tierfs.base.words.names import printable
from tierfs.base.words.types import Ack
from tierfs.faces.cli.group import command
from tierfs.faces.cli.options import ack_option, compression_option
from tierfs.faces.cli.output import cold_place
from tierfs.faces.cli.place_options import place_of, place_options, require_bucket, server_options
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.app.setup.create import InitReport
    from tierfs.engine.chunkstore.place import Place


class _NoPlace(click.ParamType[str]):
    """The word `none`. Whoever types a place here is told the options for places."""

    name = "none"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word. Raises BadParameter."""
        if value != self.name:
            self.fail(f"{value!r} is not 'none'; give a place with --bucket, --cold-dir or --cold-url", param, ctx)
        return value


@command("init")
@place_options(
    "Keep cold bytes in S3.",
    "Keep cold bytes in another place, such as webhdfs://HOST/PATH; see docs/places.md.",
    "Keep cold bytes in an existing directory.",
)
@click.option("--create-bucket", is_flag=True, help="Create the bucket first if it does not exist.")
@click.option("--if-missing", is_flag=True, help="Succeed if the store exists with this cold tier.")
@click.option("--cold", type=_NoPlace(), metavar="none", help="Create the store without a cold tier.")
@ack_option
@compression_option
@server_options()
def init(
    session: Session,
    bucket: str | None,
    create_bucket: bool,
    if_missing: bool,
    cold_url: str | None,
    cold_dir: Path | None,
    cold: str | None,
    ack: str | None,
    compression: str | None,
    **where: str | None,
) -> None:
    """Create a store in the directory given by --store, which must be missing or empty.

    The default cold tier is a directory in the store; --bucket, --cold-url and --cold-dir choose another one, and
    --cold none creates a store without one. --ack and --compression are policies of the whole store: where appends are
    durable when they are acknowledged, and whether cold objects are compressed.

    With --if-missing a repeated call changes nothing. It fails if the store has another cold tier, and warns if it has
    other policies.
    """
    if sum(choice is not None for choice in (bucket, cold_url, cold_dir, cold)) > 1:
        raise click.UsageError("--bucket, --cold-url, --cold-dir and --cold are mutually exclusive")
    if cold is not None and ack == Ack.COLD:
        raise click.UsageError("--ack cold needs a cold tier, so it cannot be used with --cold none")
    require_bucket(bucket, None, {"create_bucket": create_bucket})
    place = place_of(bucket, cold_url, cold_dir, **where)
    path = session.require_store_path()
    from tierfs.app.setup.create import INSIDE, init_store

    if place is None and cold is None:
        place = INSIDE
    chosen = {"ack": ack, "compression": compression}
    root_policies = {key: value for key, value in chosen.items() if value is not None}
    report = _existing(path, place, root_policies) if if_missing else None
    if report is None:
        report = init_store(path, place, new_bucket=create_bucket, root_policies=root_policies)
    session.warn_text(report.warnings)
    store, shown = f"{printable(str(report.path))} ({report.store_id})", cold_place(report.cold_url, report.path)
    session.done(report, f"{'created store' if report.created else 'unchanged:'} {store}, cold tier: {shown}")


def _existing(path: Path, place: Place | None, root_policies: Mapping[str, str]) -> InitReport | None:
    from tierfs.app.init_again import existing_store

    return existing_store(path, place, root_policies)
