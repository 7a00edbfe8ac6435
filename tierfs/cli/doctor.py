"""tierfs doctor: does this machine, and this store, have what tierfs needs?"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from operator import add
from typing import TYPE_CHECKING, Any

import click

from tierfs.cli import format
from tierfs.cli.lazy import command
from tierfs.cli.session import Session
from tierfs.names import printable

if TYPE_CHECKING:
    from tierfs.doctor.findings import Finding

_EXIT_FAILED = 1


@command("doctor")
@click.option("--spark", is_flag=True, help="Also look at Java and PySpark.")
@click.option("--master", metavar="URL", help="Also ask each executor of this Spark cluster, e.g. spark://HOST:7077.")
@click.option(
    "--mount", "mounts", metavar="PATH", multiple=True, help="With --master: a mount that every executor should have."
)
def doctor(session: Session, spark: bool, master: str | None, mounts: Sequence[str]) -> None:
    """Check the machine, the store and its cold tier; tell what mends what is wrong.

    One line for each check: OK, WARN or FAIL. The exit code is 1 when one failed. Without a store only the
    machine is looked at. Small objects under `probe/` are written to the cold tier and deleted again.
    """
    from tierfs.doctor.examination import examine
    from tierfs.doctor.executors import Cluster

    if mounts and master is None:
        raise click.UsageError("--mount says what executors should have: give --master URL too")
    if session.store_path is None:
        session.note("no store was named (--store DIR or TIERFS_STORE): only the machine is checked")
    cluster = None if master is None else Cluster(master, tuple(os.path.abspath(path) for path in mounts))
    if cluster is not None:
        session.note(f"asking the executors of {master}, which takes about half a minute")
    found = examine(session.store_path, spark=spark, cluster=cluster)
    session.result(_data(session, found), _text(found))
    if any(one.level == "FAIL" for one in found):
        raise click.exceptions.Exit(_EXIT_FAILED)


def _data(session: Session, found: Sequence[Finding]) -> dict[str, Any]:
    counts = Counter(one.level.value for one in found)
    return {
        "store": None if session.store_path is None else str(session.store_path.absolute()),
        "failed": counts["FAIL"],
        "warnings": counts["WARN"],
        "checks": [{**asdict(one), "level": one.level.value} for one in found],
    }


def _text(found: Sequence[Finding]) -> str:
    """One line for each check, and below it the line that mends it."""
    rows = [(one.level.value, one.name, printable(one.found)) for one in found]
    lines = format.lines(rows, "<4", "<", "<")
    remedies = ["" if one.remedy is None else f"\n      {printable(one.remedy)}" for one in found]
    return "\n".join(map(add, lines, remedies))
