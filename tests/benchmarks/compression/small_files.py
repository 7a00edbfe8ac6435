"""A question about many small files of text: ingest, offload, a cold `grep -r`, and the bytes that they take."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.benchmarks.compression.material import OFF, Made, TextFile, make_store
from tests.benchmarks.compression.site import STORED, TIERFS
from tests.benchmarks.measuring import seconds
from tests.benchmarks.mounts import MountCommand, mounted
from tests.benchmarks.reading.figures import RSS, Sample
from tests.benchmarks.reading.subjects import Question, Table
from tests.servers.endpoint import S3Endpoint
from tierfs.base.words.types import MIB

SMALL = 4
"""Number of the question."""
FILES = 20_000
FILE_BYTES = 4096
INGEST, EVICTED_GREP, OFFLOAD, GREP_AGAIN = "ingest files/s", "grep -r files/s", "offload files/s", "again files/s"

_NEEDLE = b"needle\n"
_FILES_PER_DIRECTORY = 500
_DIRECTORY = "a"


@dataclass(frozen=True)
class SmallText:
    """The files, and where stores of them are made, one for each run."""

    directory: Path
    files: int
    endpoint: S3Endpoint
    bucket: str
    policies: tuple[str, ...]

    def write(self, source: TextFile) -> None:
        """Cut the files from a long one, a line of their own at the head of each."""
        length = FILE_BYTES - len(_NEEDLE)
        for number in range(self.files):
            directory = self._source / f"d{number // _FILES_PER_DIRECTORY:03d}"
            directory.mkdir(parents=True, exist_ok=True)
            (directory / f"f{number:05d}.log").write_bytes(_NEEDLE + source.expected(number * length, length))

    def whole_way(self) -> Question:
        """From a directory of files into the cold tier and back."""
        method = (
            f"{self.files:,} files of {FILE_BYTES >> 10} KiB: a new store each time; `ingest`, `offload`, `evict`, and "
            "`grep -rc` through a fresh mount, twice."
        )
        table = Table(TIERFS[OFF], {TIERFS[name]: partial(self._one, name) for name in self.policies})
        return Question(SMALL, "Small files of text", method, {"": table})

    @property
    def _source(self) -> Path:
        return self.directory / "source"

    def _one(self, name: str, repetition: int) -> Sample:
        made = make_store(self.directory / f"{name}{repetition}", self.endpoint, self.bucket, name)
        found = {
            INGEST: self._rate(lambda: made.run("ingest", self._source, "--into", _DIRECTORY, "--seal")),
            OFFLOAD: self._rate(lambda: made.run("offload", _DIRECTORY)),
            # All objects of data but the small files' are the journal's.
            STORED: sum(map(made.cold_bytes, ("packs/", "segments/"))) / (self.files * FILE_BYTES),
        }
        made.run("evict", _DIRECTORY)
        with mounted(_mount(made), self.directory / "mnt") as mount:
            for metric in (EVICTED_GREP, GREP_AGAIN):
                found[metric] = self._rate(lambda: self._grep(mount.root / _DIRECTORY))
            found[RSS] = mount.peak_rss_bytes() / MIB
        return found

    def _rate(self, work: Callable[[], object]) -> float:
        return self.files / seconds(work)

    def _grep(self, directory: Path) -> None:
        done = subprocess.run(["grep", "-rc", "needle", directory], capture_output=True, text=True, check=True)
        assert done.stdout.count(":1\n") == self.files


def _mount(made: Made) -> MountCommand:
    mountpoint = made.path.parent / "mnt"
    words = (sys.executable, "-m", "tierfs", "-q", "--store", str(made.path), "mount", "-f", str(mountpoint))
    return MountCommand(words, made.path.parent / "mount.log")
