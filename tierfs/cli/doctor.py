"""tierfs doctor: does this machine, and this store, have what tierfs needs?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from tierfs.cli.lazy import command
from tierfs.cli.session import Session
from tierfs.names import printable

if TYPE_CHECKING:
    from tierfs.doctor.findings import Finding

_EXIT_FAILED = 1


@command("doctor")
@click.option("--spark", is_flag=True, help="Also look at Java and PySpark.")
def doctor(session: Session, spark: bool) -> None:
    """Check the machine, the store and its cold tier; tell what mends what is wrong.

    One line for each check: OK, WARN or FAIL. The exit code is 1 when one failed. Without a store only the
    machine is looked at. Small objects under `probe/` are written to the cold tier and deleted again.
    """
    from tierfs.doctor.examination import examine

    if session.store_path is None:
        session.note("no store was named (--store DIR or TIERFS_STORE): only the machine is checked")
    found = examine(session.store_path, spark=spark)
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
    width = max(len(one.name) for one in found)
    lines: list[str] = []
    for one in found:
        lines.append(f"{one.level.value:<4}  {one.name:<{width}}  {printable(one.found)}")
        if one.remedy is not None:
            lines.append(f"      {printable(one.remedy)}")
    return "\n".join(lines)
