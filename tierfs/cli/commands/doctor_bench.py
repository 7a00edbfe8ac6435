"""Define tierfs doctor, which checks machine and store, and tierfs bench, which compares a mount with its limits."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tierfs.chunkstore.link_limit import described
from tierfs.cli import output
from tierfs.cli.group import command
from tierfs.cli.options import Size
from tierfs.cli.progress import progress_line
from tierfs.cli.session import VERBOSE, Session
from tierfs.doctor.findings import DoctorFinding, FindingLevel
from tierfs.errors import InvalidRequest, NotFound
from tierfs.names import printable
from tierfs.parallel import doing
from tierfs.store_paths import StorePaths
from tierfs.system.mounts import mount_of
from tierfs.types import MIB

if TYPE_CHECKING:
    from tierfs.bench.figures import Figure, Results


_EXIT_FAILED = 1


@command("doctor")
@click.option("--spark", is_flag=True, help="Also check Java and PySpark.")
@click.option("--master", metavar="URL", help="Also check each executor of this Spark cluster, e.g. spark://HOST:7077.")
@click.option(
    "--mount",
    "mounts",
    metavar="PATH",
    multiple=True,
    help="With --master: a mount required on every executor; repeatable.",
)
@click.option(
    "--link/--no-link",
    default=True,
    show_default=True,
    help="Read up to 32 MiB of cold objects to measure the link to the cold tier.",
)
def doctor(session: Session, spark: bool, master: str | None, mounts: Sequence[str], link: bool) -> None:
    """Check the machine, the store and its cold tier, and print a remedy for each problem.

    Prints one line for each check with a problem, FAIL or WARN, and the number of those that are OK, which -v lists
    too. The exit code is 1 if a check failed. Without a store only the machine is checked. Small objects under
    `probe/` are written to the cold tier and deleted again. The link to the cold tier is measured by reads of the
    store's cold objects.
    """
    from tierfs.doctor.executors import Cluster
    from tierfs.doctor.run import examine

    if mounts and master is None:
        raise click.UsageError("--mount names a mount of executors: give --master URL too")
    if session.store_path is None:
        session.note("no store was named (--store DIR or TIERFS_STORE): only the machine is checked")
    cluster = None if master is None else Cluster(master, tuple(os.path.abspath(path) for path in mounts))
    if cluster is not None:
        session.note(f"asking the executors of {master}, which takes about half a minute")
    with progress_line(session) as show:
        show(doing("checking the machine, the store and its cold tier"))
        findings = examine(session.store_path, spark=spark, cluster=cluster, link=link)
    session.result(_doctor_data(session, findings), _text(findings, every=session.verbosity >= VERBOSE))
    if any(finding.level == "FAIL" for finding in findings):
        raise click.exceptions.Exit(_EXIT_FAILED)


def _doctor_data(session: Session, findings: Sequence[DoctorFinding]) -> dict[str, Any]:
    counts = Counter(finding.level.value for finding in findings)
    return {
        "store": None if session.store_path is None else str(session.store_path.absolute()),
        "failed": counts["FAIL"],
        "warnings": counts["WARN"],
        "checks": [{**asdict(finding), "level": finding.level.value} for finding in findings],
    }


def _text(findings: Sequence[DoctorFinding], *, every: bool) -> str:
    """Return one line for each check, the worst first, each with its remedy on a line below.

    Those that are OK are counted, unless `every` one is wanted.
    """
    worst_first = [level for level in reversed(FindingLevel) if every or level is not FindingLevel.OK]
    shown = [finding for level in worst_first for finding in findings if finding.level is level]
    rows = [(finding.level.value, finding.name, printable(finding.found)) for finding in shown]
    remedies = ["" if finding.remedy is None else f"\n      {printable(finding.remedy)}" for finding in shown]
    lines = [*map(add, output.lines(rows, "<4", "<", "<"), remedies)]
    if len(shown) < len(findings):
        lines.append(f"OK    {output.count(len(findings) - len(shown), 'check')}: tierfs doctor -v lists them")
    return "\n".join(lines)


_DEFAULT_SIZE = "256MiB"
_DEFAULT_REPETITIONS = 3
_HEADINGS = ("what", "median", "(min, max)", "of its limit", "limit")
_SIGNIFICANT_DIGITS = 6


@command("bench")
@click.argument("target", metavar="MOUNT|STORE", type=click.Path(path_type=Path))
@click.option(
    "--size", "size_bytes", type=Size(), default=_DEFAULT_SIZE, show_default=True, help="Bytes read in each repetition."
)
@click.option(
    "--repetitions",
    type=click.IntRange(min=1),
    default=_DEFAULT_REPETITIONS,
    show_default=True,
    help="Number of repetitions.",
)
def bench(session: Session, target: Path, size_bytes: int, repetitions: int) -> None:
    """Measure reads through a mount against their limits in one run; print medians and ratios.

    With a STORE, a temporary store beside it and in its cold tier is written, read in every way, and
    deleted again, also after Ctrl-C. With a MOUNT, or a path under one, its largest sealed segment is read,
    and nothing is written. The last line names what limits the link to the cold tier.
    """
    if size_bytes < MIB:
        raise InvalidRequest(f"--size {size_bytes} is less than 1 MiB, too little to measure")
    results = _measured(session, target, size_bytes, repetitions)
    data = {"path": results.path, "size_bytes": results.size_bytes, "repetitions": repetitions}
    measurements = [_bench_data(figure) for figure in results.figures]
    link = None if results.link is None else results.link.data()
    session.result({**data, "measurements": measurements, "link": link}, _bench_text(results))


def _bench_text(results: Results) -> str:
    table = output.table(_rows(results.figures), *"<<<<<")
    return table if results.link is None else f"{table}\n\nlink to the cold tier: {described(results.link)}"


def _measured(session: Session, target: Path, size_bytes: int, repetitions: int) -> Results:
    mounted = mount_of(target)
    if mounted is not None:
        from tierfs.bench.mounted import bench_mount

        return bench_mount(*mounted, size_bytes, repetitions, session.note)
    if not StorePaths(target).settings.is_file():
        raise NotFound(
            f"{printable(str(target))} is neither a store nor under a mount of one",
            remedy="list the mounts: findmnt -t fuse.tierfs",
        )
    from tierfs.bench.run import bench_store

    return bench_store(target, size_bytes, repetitions, session.note)


def _bench_data(figure: Figure) -> dict[str, Any]:
    return {
        "what": figure.what,
        "unit": figure.unit.value,
        "values": [_rounded(value) for value in figure.values],
        "median": _rounded(figure.median),
        "limit": figure.limit,
        "ratio": None if figure.ratio is None else _rounded(figure.ratio),
    }


def _rounded(value: float) -> float:
    """Round to significant digits: fixed decimals would make a delay of 0.116 ms 0.4 % wrong."""
    return float(f"{value:.{_SIGNIFICANT_DIGITS}g}")


def _rows(figures: Iterable[Figure]) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [_HEADINGS]
    for figure in figures:
        digits = 0 if figure.unit == "MB/s" else 2
        low, high = (f"{value:.{digits}f}" for value in (min(figure.values), max(figure.values)))
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        median = f"{figure.median:.{digits}f} {figure.unit.value}"
        rows.append((figure.what, median, f"({low}, {high})", ratio, figure.limit or ""))
    return rows
