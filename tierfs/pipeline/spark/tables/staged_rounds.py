"""Directories with the files of rounds, next to the data of a table whose own log decides which files it has.

A mark exists from before the first file until after the commit, which has the name of the directory. So a later run
finds what a killed one left without a list of all files.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Container

from tierfs.pipeline.spark.tables.table_files import ABANDONED_MS, HadoopFiles

# Of directories of a round's files; and that of their marks.
_DIRECTORY, _MARKS = "tierfs-", "_tierfs"


class StagedRounds:
    """The directories of one table."""

    def __init__(self, files: HadoopFiles, data: str) -> None:
        """`data`: the directory of the table's data, as a URL."""
        self._files, self._data = files, data

    def new(self) -> str:
        """Return a new directory."""
        name = uuid.uuid4().hex
        self._files.write(f"{self._data}/{_MARKS}/{name}", {})
        return f"{self._data}/{_DIRECTORY}{name}"

    def committed(self, directory: str) -> None:
        """Forget that a directory was staged: its files are in the table. Nothing for no directory."""
        if directory:
            self._files.remove(f"{self._data}/{_MARKS}/{name_of(directory)}")

    def sweep(self, *, alone: bool, committed: Callable[[], Container[str | None]]) -> None:
        """Remove directories that no commit has. `alone`: no run can be writing them now.

        `committed` returns the names in the table's commits. It is called only if a killed run has left something.
        """
        marks = f"{self._data}/{_MARKS}"
        names = [
            name for name in self._files.names(marks) if alone or self._files.age_ms(f"{marks}/{name}") > ABANDONED_MS
        ]
        known = committed() if names else ()
        for name in names:
            if name not in known:
                self._files.remove(f"{self._data}/{_DIRECTORY}{name}")
            self._files.remove(f"{marks}/{name}")


def name_of(directory: str) -> str:
    """Return the name of a staged directory, as a commit has it; nothing for no directory."""
    return directory.rpartition(f"/{_DIRECTORY}")[2]
