"""The options and the run of a job, as all jobs have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import OnProgress, doing
from tierfs.base.system import extras
from tierfs.base.words.errors import InvalidRequest
from tierfs.faces.cli.paths import paths_argument
from tierfs.faces.cli.place_options import added
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import NORMAL, Session

if TYPE_CHECKING:
    from tierfs.pipeline.spark.jobs.result import Result
    from tierfs.pipeline.spark.jobs.session import JobSession

F = TypeVar("F", bound=Callable[..., Any])

_NEEDED = ("pyspark", "py4j", "pyarrow", "pandas", "numpy")


@dataclass(frozen=True, slots=True)
class Job:
    """The cluster, the Spark settings and the file of a job's rows."""

    master: str | None
    settings: Sequence[str]
    file: Path | None

    @contextmanager
    def running(self, session: Session, name: str) -> Iterator[tuple[JobSession, Store, OnProgress]]:
        """Check the options, open the store, start Spark, and show progress for one job.

        The store is opened before Spark, to fail early. Raises InvalidRequest for a setting without a value.
        """
        settings: dict[str, str] = {}
        for setting in self.settings:
            key, equals, value = setting.partition("=")
            if not (key and equals):
                raise InvalidRequest(f"invalid setting --conf {setting}", remedy="write NAME=VALUE")
            settings[key] = value
        check_output(self.file)
        from tierfs.pipeline.spark.jobs.session import job_session

        with session.open_store() as store, progress_line(session) as show:
            show(doing("starting Spark"))
            with job_session(name, self.master, settings, quiet=session.verbosity <= NORMAL) as spark:
                yield spark, store, show

    def finish(self, session: Session, result: Result, summary: str) -> None:
        """Write and print the result."""
        if self.file is not None:
            result.write(self.file)
        table = result.text()
        session.result(result.as_json(), f"{table}\n{summary}" if table else summary)


def output_option(line: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option("--output", "file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help=line)


def job_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every job, which the function gets as its argument `job`."""

    @wraps(function)
    def call(
        session: Session, master: str | None, settings: Sequence[str], file: Path | None = None, **named: Any
    ) -> None:
        function(session, job=Job(master, settings, file), **named)

    return added(
        click.option("--master", metavar="URL", help="URL of the Spark cluster  [default: local[*]]"),
        click.option("--conf", "settings", metavar="K=V", multiple=True, help="Spark setting; repeatable."),
    )(call)


rows_option = output_option("Also write the rows: .parquet, .csv or .json (an object per line).")


def check_output(file: Path | None, more: Sequence[str] = ()) -> None:
    """Raise InvalidRequest for an output file that cannot be written, and MissingPackage."""
    extras.require("a job of Spark", "spark", *_NEEDED)
    from tierfs.pipeline.spark.errors import require_sources

    require_sources("tierfs pipeline")
    from tierfs.pipeline.spark.jobs.result import require_suffix

    if file is None:
        return
    require_suffix(file, more)
    if not file.absolute().parent.is_dir():
        raise InvalidRequest(f"the directory of {file} does not exist", remedy=f"create it: mkdir -p {file.parent}")


class Texts(click.ParamType[tuple[str, ...]]):
    """Texts with commas between them."""

    name = "texts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Return the texts without blanks around them; none for nothing."""
        return value if isinstance(value, tuple) else tuple(text for each in value.split(",") if (text := each.strip()))


def rows_options(
    types: Sequence[str], target: str, target_help: str, partition: str, partition_help: str
) -> Callable[[F], F]:
    """Add PATHS, --to, --type and --partition-by; the first of `types` is the default."""
    return added(
        paths_argument(metavar="PATHS..."),
        click.option("--to", "target", required=True, metavar=target, help=target_help),
        click.option(
            "--type",
            "row_type",
            type=click.Choice(tuple(types)),
            default=types[0],
            show_default=True,
            help="Content of a row.",
        ),
        click.option("--partition-by", type=Texts(), metavar=partition, default="", help=partition_help),
    )
