"""Questions that need no S3: the local tier, and the kernel's cache, against a null filesystem."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.measuring import heat
from tests.benchmarks.mounts import Mount
from tests.benchmarks.reading.corpus import File, fill_store
from tests.benchmarks.reading.figures import Sample
from tests.benchmarks.reading.subjects import Bench, Question, Subject, Table, TierfsSubjects, null_subject, streamed
from tests.benchmarks.workloads import dd
from tierfs.app.setup.create import init_store

_NULL = "null pyfuse3 filesystem"
_FILE_OF = {_NULL: "null"}


@dataclass(frozen=True)
class LocalQuestions:
    """Questions about one sealed segment that is wholly local."""

    bench: Bench
    directory: Path
    file: File

    @property
    def store(self) -> Path:
        """The store with the segment."""
        return self.directory / "local"

    def build(self) -> None:
        """Write the segment."""
        init_store(self.store, None)
        fill_store(self.store, [self.file])

    def first_read(self) -> Question:
        """How near the mount comes to a filesystem that only answers."""
        method = "One `dd bs=1M` of a sealed local segment: chunk files in the page cache, nothing cached of the mount."
        subjects = [null_subject(self._log, self.file.size_bytes), self._tierfs]
        return Question(3, "Sequential read, local tier", method, {"": self._table(subjects, again=False)})

    def second_read(self) -> Question:
        """Whether reading again costs nothing but the kernel's copy."""
        method = "The second `dd bs=1M` of the same sealed segment in one mount: the kernel kept the pages."
        subjects = [null_subject(self._log, self.file.size_bytes, keep_cache=True), self._tierfs]
        return Question(4, "Second read of a sealed segment", method, {"": self._table(subjects, again=True)})

    @property
    def _log(self) -> Path:
        return self.directory / "mount.log"

    @property
    def _tierfs(self) -> Subject:
        return TierfsSubjects(self._log).of("tierfs", self.store, warm=False)

    def _table(self, subjects: list[Subject], *, again: bool) -> Table:
        def run(subject: Subject) -> Sample:
            self._make_resident()
            return self.bench.measure(subject, lambda mount: self._read(subject, mount, again=again))

        return Table(_NULL, {one.label: lambda _, one=one: run(one) for one in subjects})  # type: ignore[misc]

    def _read(self, subject: Subject, mount: Mount, *, again: bool) -> Sample:
        path = mount.root / _FILE_OF.get(subject.label, self.file.name)
        if again:
            dd([path])
            heat(self.bench.hot_bytes)
        return streamed(mount, self.file.size_bytes, lambda: dd([path]))[0]

    def _make_resident(self) -> None:
        for chunk in (self.store / "chunks").glob("*/*"):
            chunk.read_bytes()
