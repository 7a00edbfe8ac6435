"""What people do all day: `ls -laR`, `find`, `du`, `grep -r` and `tar` over many small files, beside other mounts.

The same files are segments that are open, sealed segments, files of JuiceFS (if it is on PATH) over a local directory,
files of a null filesystem written with pyfuse3, and files of the local disk. Subjects take turns; each is mounted anew.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.measuring import seconds
from tests.benchmarks.mounts import Mount, MountCommand, mounted
from tests.benchmarks.reading.peers import JUICE, version_number
from tests.servers.endpoint import S3Endpoint
from tierfs.app.setup.create import init_store

DIRECTORIES = 50
FILES = 100
"""In each directory."""
FILE_BYTES = 1800
MANY = 100_000
"""Files of the one large directory."""

TOOLS: dict[str, tuple[str, ...]] = {
    "ls -laR": ("ls", "-laR", "."),
    "find -newer": ("find", ".", "-newer", "/etc/hostname"),
    "du -s": ("du", "-s", "."),
    "grep -rc": ("grep", "-rc", "needle", "."),
    "tar": ("tar", "-cf", "-", "."),
}
"""Each runs twice: the second run is what people do again."""


@dataclass(frozen=True)
class _Subject:
    name: str
    mount: Callable[[], AbstractContextManager[Mount | None]]
    root: Path
    """Directory with the files, while it is mounted."""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    cpu_s: dict[str, list[float]] = field(default_factory=dict)
    rss_bytes: list[int] = field(default_factory=list)


def bench_everyday(path: Path, repetitions: int) -> Iterator[str]:
    """Seconds of each tool, first and again, and the mount's CPU for both."""
    source = path.parent / "source"
    _make(source)
    subjects = _subjects(path, source)
    for _ in range(repetitions):
        for subject in subjects:
            with subject.mount() as mount:
                for tool, words in TOOLS.items():
                    _measure(subject, mount, tool, words)
    yield f"### {DIRECTORIES * FILES:,} files of {FILE_BYTES:,} bytes in {DIRECTORIES} directories\n"
    yield from _table(subjects)


def bench_one_directory(path: Path, repetitions: int) -> Iterator[str]:
    """`ls -la` of one directory of 100,000 empty files, first and again."""
    source = path.parent / "many"
    source.mkdir()
    for number in range(MANY):
        (source / f"f{number:06d}.log").touch()
    subjects = _subjects(path, source)
    for _ in range(repetitions):
        for subject in subjects:
            with subject.mount() as mount:
                _measure(subject, mount, "ls -la", ("ls", "-la", "."))
    yield f"### {MANY:,} empty files in one directory\n"
    yield from _table(subjects)


def bench_evicted(path: Path, endpoint: S3Endpoint, repetitions: int) -> Iterator[str]:
    """Seconds of `grep -rc` and `tar` of the same files in Ceph RGW alone, each in a fresh mount without a cache."""
    source = path.parent / "source"
    _make(source)
    _tierfs(path, "ingest", source, "--into", "evicted")
    _tierfs(path, "offload", "evicted")
    _tierfs(path, "evict", "evicted")
    mnt = path.parent / "mnt"
    subjects = [_Subject("tierfs", lambda: _ours(path, mnt), mnt / "evicted")]
    if shutil.which(JUICE.program):
        keys = ("--access-key", endpoint.access_key, "--secret-key", endpoint.secret_key)
        bucket = f"{endpoint.endpoint_url}/{endpoint.create_bucket()}"
        scratch = path.parent / "juicefs-s3"  # `everyday` in the same run has a volume of its own
        scratch.mkdir()
        subjects.append(_juicefs(scratch, source, mnt, ("--storage", "s3", "--bucket", bucket, *keys)))
    for _ in range(repetitions):
        for subject in subjects:
            for tool in ("grep -rc", "tar"):
                with subject.mount() as mount:
                    _measure(subject, mount, tool, TOOLS[tool], again=False)
    yield f"### {DIRECTORIES * FILES:,} files of {FILE_BYTES:,} bytes that only Ceph RGW has\n"
    yield from _table(subjects)


def _subjects(path: Path, source: Path) -> list[_Subject]:
    """Make a copy of the files for each subject."""
    scratch, mnt = path.parent, path.parent / "mnt"
    init_store(path, None)
    for name, option in (("open", "--open"), ("sealed", "--seal")):
        _tierfs(path, "ingest", source, "--into", name, option)

    def null() -> AbstractContextManager[Mount]:
        words = (sys.executable, "-m", "tests.benchmarks.files.null_tree", str(source), str(mnt))
        return mounted(MountCommand(words, scratch / "null.log", read_ahead=False), mnt)

    subjects = [_Subject("local disk", nullcontext, source), _Subject("null pyfuse3 filesystem", null, mnt)]
    if shutil.which(JUICE.program):
        subjects.append(_juicefs(scratch, source, mnt, ("--storage", "file", "--bucket", f"{scratch}/juicefs/")))
    ours = [_Subject(f"tierfs, {name}", lambda: _ours(path, mnt), mnt / name) for name in ("open", "sealed")]
    return [*subjects, *ours]


def _ours(path: Path, mnt: Path) -> AbstractContextManager[Mount]:
    return mounted(MountCommand(tuple(_command(path, "mount", "-f", mnt)), path.parent / "mount.log"), mnt)


def _juicefs(scratch: Path, source: Path, mnt: Path, storage: tuple[str, ...]) -> _Subject:
    database = f"sqlite3://{scratch}/juicefs.db"
    quiet = ("--no-usage-report", "--backup-meta", "0", "--cache-size", "0", "--cache-dir", f"{scratch}/juicefs-cache")
    command = MountCommand((JUICE.program, "mount", *quiet, database, str(mnt)), scratch / "juicefs.log")
    formatted = (JUICE.program, "format", *storage, "--trash-days", "0", database, "volume")
    subprocess.run(formatted, check=True, capture_output=True)
    with mounted(command, mnt) as mount:
        subprocess.run(["cp", "-a", source, mount.root / "files"], check=True)
    name = f"{JUICE.label} {version_number(JUICE.version())}"
    return _Subject(name, lambda: mounted(command, mnt), mnt / "files")


def _measure(subject: _Subject, mount: Mount | None, tool: str, words: tuple[str, ...], *, again: bool = True) -> None:
    for key in (tool, f"{tool}, again") if again else (tool,):
        before = mount.cpu_s() if mount else 0.0
        taken = seconds(lambda: _run(words, subject.root))
        subject.seconds.setdefault(key, []).append(taken)
        subject.cpu_s.setdefault(key, []).append(mount.cpu_s() - before if mount else 0.0)
    subject.rss_bytes.append(mount.peak_rss_bytes() if mount else 0)


def _run(words: tuple[str, ...], root: Path) -> None:
    """Run a tool, with its output thrown away by a pipe: tar reads nothing when it writes to /dev/null."""
    with subprocess.Popen(words, cwd=root, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while process.stdout.read(1 << 20):
            pass
    assert process.returncode == 0, words


def _table(subjects: list[_Subject]) -> Iterator[str]:
    keys = list(subjects[0].seconds)
    yield "| seconds (CPU of the mount) | " + " | ".join(subject.name for subject in subjects) + " |"
    yield "|---|" + "---|" * len(subjects)
    for key in keys:
        cells = (
            f"{statistics.median(subject.seconds[key]):.2f} ({statistics.median(subject.cpu_s[key]):.2f})"
            for subject in subjects
        )
        yield f"| `{key}` | " + " | ".join(cells) + " |"
    yield "| RSS, MiB | " + " | ".join(str(max(subject.rss_bytes) >> 20) for subject in subjects) + " |"


def _make(source: Path) -> None:
    chosen = random.Random(11)
    for number in range(DIRECTORIES * FILES):
        directory = source / f"d{number // FILES:02d}"
        directory.mkdir(parents=True, exist_ok=True)
        text = b"needle\n" + chosen.randbytes(FILE_BYTES // 2).hex().encode()
        (directory / f"f{number:05d}.log").write_bytes(text[: FILE_BYTES - 1] + b"\n")


def _command(path: Path, *words: object) -> list[str]:
    return [sys.executable, "-m", "tierfs", "-q", "--store", str(path), *map(str, words)]


def _tierfs(path: Path, *words: object) -> None:
    subprocess.run(_command(path, *words), check=True, capture_output=True, env=os.environ)
