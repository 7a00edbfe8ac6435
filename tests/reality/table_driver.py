"""`tierfs pipeline table` that tells which step it makes: `python -m tests.reality.table_driver FD ARGUMENTS…`.

A line for each step goes to the file descriptor FD: the time, and the step's name. All else is the command itself.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial

from tierfs.faces.cli.main import main
from tierfs.pipeline.spark.jobs import table
from tierfs.pipeline.spark.tables.table_files import HadoopFiles


def told(told_to: int, step: str) -> None:
    os.write(told_to, f"{time.monotonic_ns()} {step}\n".encode())


def run(told_to: int) -> None:
    """Run the command line, with a step that is told; a move is how a directory of Parquet files shows a file."""
    os.set_inheritable(told_to, False)  # the JVM would hold it open
    move = HadoopFiles.move

    def moved(files: HadoopFiles, source: str, goal: str) -> None:
        if goal.endswith(".parquet"):
            told(told_to, "publish")
        move(files, source, goal)

    HadoopFiles.move = moved  # type: ignore[method-assign]
    table.TableJob = partial(table.TableJob, step=partial(told, told_to))  # type: ignore[assignment,misc]
    main()


if __name__ == "__main__":
    run(int(sys.argv.pop(1)))
