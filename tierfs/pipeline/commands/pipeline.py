"""Define tierfs pipeline: heavy work on a store as Spark jobs. Spark is not imported before a job begins."""

from __future__ import annotations

from pathlib import Path

import click

from tierfs.faces.cli.group import LazyGroup

_JOBS = ("ingest", "scrub", "report", "export", "table", "rebuild")
_COMMANDS = {name: f"tierfs.pipeline.commands.{name}:{name}" for name in _JOBS}
_SCRIPT = Path(__file__).parents[1] / "spark" / "jobs" / "submit.py"


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
