"""Define tierfs doctor, which checks machine and store, and with --bench compares a mount with its limits."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from operator import add
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tierfs.base.bytes.progress import doing
from tierfs.base.system.places import place_of
from tierfs.base.words.errors import InvalidRequest, NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.types import MIB
from tierfs.faces.cli import output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.parameter_types import Size
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import VERBOSE, Session
from tierfs.faces.doctor.findings import DoctorFinding, FindingLevel

if TYPE_CHECKING:
    from tierfs.faces.doctor.compression import CompressionResults

_EXIT_FAILED = 1
_MB_PER_S = "MB/s"


@command("doctor")
@click.option("--spark", is_flag=True, help="Also check Java and PySpark.")
@click.option(
    "--master", metavar="URL", help="Also check each executor of this Spark cluster, such as spark://HOST:7077."
)
@click.option(
    "--mount",
    "mounts",
    metavar="PATH",
    multiple=True,
    help="With --master: a mount required on every executor; repeatable.",
)
@click.option("--bench", metavar="MOUNT", type=click.Path(path_type=Path), help="Only measure reads through a mount.")
@click.option(
    "--size", "size_bytes", type=Size(), default="256MiB", show_default=True, help="With --bench: bytes read."
)
@click.option(
    "--repetitions",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="With --bench: number of repetitions.",
)
def doctor(
    session: Session,
    spark: bool,
    master: str | None,
    mounts: Sequence[str],
    bench: Path | None,
    size_bytes: int,
    repetitions: int,
) -> None:
    """Check the machine, the store and its cold tier, and print a remedy for each problem.

    Prints one line for each check with a problem, FAIL or WARN, and the number of checks that are OK; -v lists these
    too. The exit code is 1 if a check failed. Without a store, only the machine is checked. Small objects under
    `probe/` are written to the cold tier and deleted.

    --bench compares reads through a mount with their limit in one run, and prints medians and their ratio. It reads the
    largest sealed segment under MOUNT, which can be a path below a mount, and the same bytes without the mount: by GETs
    of its objects, or from its chunk files if the mount reads those. Then it compresses and unpacks a sample of the
    bytes under MOUNT, and shows what compression=auto would save. Nothing is written.
    """
    given = click.get_current_context().get_parameter_source
    if bench is None and ParameterSource.COMMANDLINE in (given("size_bytes"), given("repetitions")):
        raise click.UsageError("--size and --repetitions need --bench MOUNT")
    if bench is not None:
        if spark or master is not None:
            raise click.UsageError("--bench and --spark or --master are mutually exclusive")
        _bench(session, bench, size_bytes, repetitions)
        return
    from tierfs.faces.doctor.cluster import Cluster
    from tierfs.faces.doctor.run import examine

    if mounts and master is None:
        raise click.UsageError("--mount is for a mount of executors, and needs --master URL")
    if session.store_path is None:
        session.note("no store given (--store DIR or TIERFS_STORE): only the machine is checked")
    cluster = None if master is None else Cluster(master, tuple(os.path.abspath(path) for path in mounts))
    if cluster is not None:
        session.note(f"checking the executors of {master}, which takes about half a minute")
    with progress_line(session) as show:
        show(doing("checking the machine, the store and its cold tier"))
        findings = examine(session.store_path, spark=spark, cluster=cluster)
    counts = Counter(finding.level.value for finding in findings)
    data = {
        "store": None if session.store_path is None else session.store_path.absolute(),
        "failed": counts["FAIL"],
        "warnings": counts["WARN"],
        "checks": [output.fields(finding, "name level found=text remedy") for finding in findings],
    }
    session.result(data, _text(findings, every=session.verbosity >= VERBOSE))
    if counts["FAIL"]:
        raise click.exceptions.Exit(_EXIT_FAILED)


def _text(findings: Sequence[DoctorFinding], *, every: bool) -> str:
    """Return one line for each check, the worst first, each with its remedy on a line below.

    Those that are OK are counted, unless `every` one is wanted.
    """
    worst_first = [level for level in reversed(FindingLevel) if every or level is not FindingLevel.OK]
    shown = [finding for level in worst_first for finding in findings if finding.level is level]
    rows = [(finding.level.value, finding.name, printable(finding.text)) for finding in shown]
    remedies = ["" if finding.remedy is None else f"\n      {printable(finding.remedy)}" for finding in shown]
    lines = [*map(add, output.lines(rows, "<4", "<", "<"), remedies)]
    if len(shown) < len(findings):
        lines.append(f"OK    {output.count(len(findings) - len(shown), 'check')}: tierfs doctor -v lists them")
    return "\n".join(lines)


def _bench(session: Session, target: Path, size_bytes: int, repetitions: int) -> None:
    from tierfs.faces.doctor.bench import RAW, bench_mount

    if size_bytes < MIB:
        raise InvalidRequest(f"--size {size_bytes} is too small to measure; use at least 1 MiB")
    place = place_of(str(target))
    if place is None:
        raise NotFound(
            f"{printable(str(target))} is not under a mount of a store",
            remedy="list the mounts: findmnt -t fuse.tierfs",
        )
    results = bench_mount(place, size_bytes, repetitions, session.note)
    rows = [(f"mount, {results.tier.name.lower()} tier", results.mount), (RAW[results.tier], results.raw)]
    measured = [(what, rates) for what, rates in rows if rates]
    data = {
        **output.fields(results, "path size_bytes"),
        "repetitions": repetitions,
        "measurements": [
            {"what": what, "unit": _MB_PER_S, "values": rates, "median": median(rates)} for what, rates in measured
        ],
        "ratio": results.ratio,
        "compression": _compression_data(results.compression),
    }
    table = [("what", "median", "(min, max)")]
    table += [
        (what, f"{median(rates):.0f} {_MB_PER_S}", f"({min(rates):.0f}, {max(rates):.0f})") for what, rates in measured
    ]
    ratio = "" if results.ratio is None else f"\nratio: {results.ratio:.2f}"
    told = _compression_text(results.compression)
    session.result(data, "\n".join([output.table(table, *"<<<") + ratio, *told]))


def _compression_data(measured: CompressionResults) -> dict[str, Any]:
    return {
        **output.fields(measured, "generated sample_bytes=sample.plain_bytes ratio=sample.ratio"),
        **output.fields(measured, "plain_cold_bytes saved_bytes"),
        "compress": {"unit": _MB_PER_S, "value": measured.compress_mb_per_s},
        "decompress": {"unit": _MB_PER_S, "value": measured.decompress_mb_per_s},
    }


def _compression_text(measured: CompressionResults) -> list[str]:
    of = "lines that were made up" if measured.generated else "the bytes here"
    inward, outward = measured.compress_mb_per_s, measured.decompress_mb_per_s
    speed = f"{inward:.0f} {_MB_PER_S}, unpack {outward:.0f} {_MB_PER_S} a core"
    ratio = measured.sample.ratio or 1.0
    saved = f"{output.size(measured.saved_bytes)} of the {output.size(measured.plain_cold_bytes)}"
    return [
        f"compression: ratio {ratio:.2f} of {output.size(measured.sample.plain_bytes)} of {of}; compress {speed}",
        f"compression=auto would save about {saved} that are plain in the cold tier",
    ]
