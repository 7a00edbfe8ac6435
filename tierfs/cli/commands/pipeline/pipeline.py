"""Define tierfs pipeline: heavy work on a store as Spark jobs. Spark is not imported before a job begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from tierfs.app.store import Store
from tierfs.cli import output
from tierfs.cli.group import LazyGroup
from tierfs.cli.progress import progress_line
from tierfs.cli.session import NORMAL, Session
from tierfs.errors import InvalidRequest, NotFound
from tierfs.parallel import OnProgress, doing

if TYPE_CHECKING:
    from tierfs.spark.jobs.session import JobSession
    from tierfs.spark.jobs.tasks import Result

F = TypeVar("F", bound=Callable[..., None])

_COMMANDS = {
    "ingest": "tierfs.cli.commands.pipeline.jobs:ingest",
    "scrub": "tierfs.cli.commands.pipeline.jobs:scrub",
    "report": "tierfs.cli.commands.pipeline.jobs:report",
    "export": "tierfs.cli.commands.pipeline.jobs:export",
    "rebuild": "tierfs.cli.commands.pipeline.jobs:rebuild",
}
_SCRIPT = Path(__file__).parents[3] / "spark" / "jobs" / "submit.py"
_NEEDED = ("pyspark", "pyarrow")


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The cluster and the Spark settings of a job."""

    master: str | None
    settings: dict[str, str]


def _print_script(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        click.echo(str(_SCRIPT))
        ctx.exit()


@click.group("pipeline", cls=LazyGroup, lazy=_COMMANDS, store_variable=None)
@click.option(
    "--script",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_script,
    help="Print the path of the program for spark-submit, which takes the same arguments.",
)
def pipeline() -> None:
    """Run heavy work on a store as Spark jobs, here or on a cluster.

    Needs PySpark, pyarrow and pandas (docs/spark.md), and Java. With spark-submit, and so with the cluster's
    settings: spark-submit $(tierfs pipeline --script) scrub --store DIR
    """


def job_options(function: F) -> F:
    """Add the options of every job: `master` and `settings`, for `job_of`."""
    with_master = click.option("--master", metavar="URL", help="URL of the Spark cluster  [default: local[*]]")
    with_settings = click.option("--conf", "settings", metavar="K=V", multiple=True, help="Spark setting; repeatable.")
    return with_master(with_settings(function))


def output_option(function: F) -> F:
    """Add the option that also writes the rows to a file."""
    return click.option(
        "--output",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Also write the rows: .parquet, .csv or .json (an object per line).",
    )(function)


def job_of(master: str | None, settings: Sequence[str]) -> JobOptions:
    """Parse the options. Raises InvalidRequest for a setting without a value."""
    pairs: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not (name and equals):
            raise InvalidRequest(f"--conf {setting} is not a setting", remedy="write NAME=VALUE")
        pairs[name] = value
    return JobOptions(master, pairs)


def require_spark() -> None:
    """Raise NotFound, with the remedy, if a module that jobs need is not installed."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        from tierfs.doctor.machine import INSTALL_PYSPARK

        raise NotFound(f"{' and '.join(missing)} missing: jobs need Spark", remedy=INSTALL_PYSPARK)


@contextmanager
def running(session: Session, name: str, options: JobOptions) -> Iterator[tuple[JobSession, Store, OnProgress]]:
    """Open the store, start Spark, and show progress for one job. The store is opened first, to fail early."""
    require_spark()
    from tierfs.spark.jobs.session import job_session

    with session.open_store() as store, progress_line(session) as show:
        show(doing("starting Spark"))
        quiet = session.verbosity <= NORMAL
        with job_session(name, options.master, options.settings, quiet=quiet) as spark:
            yield spark, store, show


def check_output(output: Path | None, more: Sequence[str] = ()) -> None:
    """Raise InvalidRequest for an output file that cannot be written; called before the work."""
    require_spark()
    from tierfs.spark.jobs.tasks import require_suffix

    if output is None:
        return
    require_suffix(output, more)
    if not output.absolute().parent.is_dir():
        raise InvalidRequest(f"{output}: its directory does not exist", remedy=f"create it: mkdir -p {output.parent}")


def finish(session: Session, result: Result, output: Path | None, summary: str) -> None:
    """Write and print the result of a job."""
    if output is not None:
        result.write(output)
    table = result.text()
    session.result(result.as_json(), f"{table}\n{summary}" if table else summary)


def per_second(done_bytes: int, seconds: float) -> str:
    """Format a speed for people."""
    return f"{output.size(int(done_bytes / seconds))}/s" if seconds else "-"
