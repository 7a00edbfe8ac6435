"""`tierfs pipeline table` while everything that it needs is killed: the driver, its JVM, executors, the store's holder.

Segments grow meanwhile, and new ones appear. After each death of a driver the table has the lines up to its own offset,
each once; at the end it has all lines.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
from pyiceberg.table import StaticTable

from tests.pipeline.spark.tables import lines_up_to, objects
from tests.servers.iceberg_jar import JAR
from tests.servers.spark_cluster import ROOT, SparkCluster, processes_in
from tierfs.app.setup.create import init_store
from tierfs.app.store import Store, open_store
from tierfs.pipeline.reader.stream_plan import StreamOffset
from tierfs.pipeline.spark.tables import offset_texts

FORMATS = ("iceberg", "parquet")

# A run of Spark starts in 5 to 15 s; of one that has made a round, kills are drawn from this time.
_ROUND_S = 120.0
_LIFE_S = 4.0
_APPEND_S = 0.05
_SEGMENTS = 6
_END_S = 300.0

# Drawn as often as they stand here.
_VICTIMS = ("driver", "JVM", "JVM", "executor", "executor", "worker", "holder")

_SETTINGS = (
    "spark.driver.memory=512m",
    "spark.driver.host=127.0.0.1",
    "spark.executor.memory=512m",
    "spark.executor.cores=1",
    f"spark.executorEnv.PYTHONPATH={ROOT}",
    "spark.ui.enabled=false",
)

_TIERFS = (sys.executable, "-m", "tierfs")


@dataclass
class TableDrill:
    """One table of a format, its store, and what was killed."""

    root: Path
    kind: str
    chosen: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    wrong: list[str] = field(default_factory=list)
    appended: int = 0
    names: set[str] = field(default_factory=set)
    end: threading.Event = field(default_factory=threading.Event)

    @property
    def store(self) -> Path:
        return self.root / "store"

    def run(self, kills: int) -> TableDrill:
        """Kill so often, then let a run end; look at the rows after each death of a run, and at the end."""
        self.root.mkdir()
        init_store(self.store)
        with SparkCluster(self.root / "cluster") as cluster:
            with open_store(self.store) as store, self._growing(store):
                while sum(self.kills.values()) < kills and not self.wrong:
                    self._live(cluster, kills)
                    self._compare(store)
            self._until_done(cluster)
        with open_store(self.store) as store:
            self._compare(store, whole=True)
        return self

    @contextmanager
    def _growing(self, store: Store) -> Iterator[None]:
        """Append to segments in a thread, as long as the block lasts."""
        thread = threading.Thread(target=self._grow, args=(store,))
        thread.start()
        try:
            yield
        finally:
            self.end.set()
            thread.join()

    def _grow(self, store: Store) -> None:
        chosen, turns = random.Random(self.chosen.random()), 0
        while not self.end.wait(_APPEND_S):
            turns += 1
            name = f"logs/{turns // 200:03d}-{chosen.randrange(_SEGMENTS)}"
            lines = [self._line(chosen) for _ in range(chosen.randrange(1, 200))]
            writer = store.engine.open_writer(name)
            writer.append(b"".join(lines), last=True, seal=False)
            store.engine.close_writer(writer)
            self.names.add(name)
            self.appended += len(lines)

    def _line(self, chosen: random.Random) -> bytes:
        if chosen.random() < 0.01:
            return b"not JSON\n"
        return b'{"n": %d, "at": "2031-01-%02dT10:00:00Z"}\n' % (chosen.randrange(2**40), chosen.randrange(1, 4))

    def _command(self, cluster: SparkCluster, *more: str) -> list[str]:
        target = "lake.logs.web" if self.kind == "iceberg" else str(self.root / "lake")
        words = [*_TIERFS, "--store", str(self.store), "--json", "pipeline", "table", "logs", "--to", target]
        words += ["--type", "json", "--schema", "n long, at timestamp", "--partition-by", "day(at)", "--compact", *more]
        words += ["--master", cluster.master]
        for setting in _SETTINGS:
            words += ["--conf", setting]
        if self.kind == "iceberg":
            words += ["--warehouse", str(self.root / "warehouse"), "--conf", f"spark.jars={JAR}"]
        return words

    def _live(self, cluster: SparkCluster, kills: int) -> None:
        """One run, up to the kill of its driver or its own end by another one. One that ends by itself is wrong."""
        before = sum(self.kills.values())
        with self._holder() as holder:
            running = subprocess.Popen(
                self._command(cluster, "--every", "0.3s", "--round-bytes", "64k", "--expire", "20s"),
                stdout=subprocess.PIPE,
                stderr=(errors := (self.root / "errors").open("wb")),
                start_new_session=True,
                cwd=self.root,
            )
            reading = threading.Thread(target=self._read, args=(running, started := threading.Event()))
            reading.start()
            try:
                # Some are killed while they start, and the first round is made.
                started.wait(_ROUND_S if self.chosen.random() < 0.8 else self.chosen.uniform(3.0, 15.0))
                while running.poll() is None and sum(self.kills.values()) < kills:
                    time.sleep(self.chosen.uniform(0.0, _LIFE_S))
                    victim = self.chosen.choice(_VICTIMS)
                    self._kill(victim, cluster, running.pid, holder)
                    if victim in ("driver", "JVM"):
                        break
                if before == sum(self.kills.values()):
                    self.wrong.append((self.root / "errors").read_text()[-1000:])
            finally:
                errors.close()
                _end_all(running)
                reading.join()

    def _read(self, running: subprocess.Popen[bytes], started: threading.Event) -> None:
        assert running.stdout is not None
        with running.stdout as lines:
            for line in lines:
                with suppress(ValueError):
                    self.rounds += json.loads(line)["rounds"]
                    started.set()
        started.set()

    @contextmanager
    def _holder(self) -> Iterator[list[subprocess.Popen[bytes]]]:
        """The process that does the cold work; a killed one is started again."""
        running = [self._start_holder()]
        try:
            yield running
        finally:
            running[-1].kill()
            running[-1].wait()

    def _start_holder(self) -> subprocess.Popen[bytes]:
        words = [*_TIERFS, "--store", str(self.store), "daemon", "-f"]
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _kill(self, victim: str, cluster: SparkCluster, driver: int, holder: list[subprocess.Popen[bytes]]) -> None:
        """Kill one process of a kind, if there is one now."""
        if victim == "holder":
            holder[-1].kill()
            holder[-1].wait()
            holder.append(self._start_holder())
            self.kills[victim] += 1
            return
        found = [driver] if victim == "driver" else _of_kind(victim, [*_descendants(driver), *_workers(cluster)])
        if found:
            with suppress(ProcessLookupError):
                os.kill(self.chosen.choice(found), signal.SIGKILL)
                self.kills[victim] += 1

    def _until_done(self, cluster: SparkCluster) -> None:
        done = subprocess.run(self._command(cluster), cwd=self.root, capture_output=True, timeout=_END_S, check=False)
        if done.returncode:
            self.wrong.append(done.stderr.decode()[-500:])

    def _compare(self, store: Store, *, whole: bool = False) -> None:
        """Note where the rows of a table are not the lines up to its offset."""
        for table, which in (("web", 0), ("web_bad", 1)):
            offset = self._offset(table)
            if offset is None:
                continue
            expected = objects(lines_up_to(store, offset, sorted(self.names.copy())))[which]
            columns = ("_segment", "_offset", "n") if which == 0 else ("segment", "offset", "line")
            found = sorted(tuple(row[name] for name in columns) for row in self._rows(table))
            if found != expected:
                more, less = Counter(found) - Counter(expected), Counter(expected) - Counter(found)
                self.wrong.append(f"{table}: {len(found)} rows, not {len(expected)}: +{more} -{less}"[:500])
            if whole:
                total = [
                    len(part) for part in objects(lines_up_to(store, _everything(offset), sorted(self.names.copy())))
                ]
                if len(found) != total[which]:
                    self.wrong.append(f"{table}: {len(found)} rows of {total[which]} lines")

    def _offset(self, table: str) -> StreamOffset | None:
        if self.kind == "parquet":
            rounds = sorted((self._directory(table) / "_tierfs" / "rounds").glob("*.json"))
            saved = json.loads(rounds[-1].read_text())["offset"] if rounds else None
            return None if saved is None else StreamOffset.of(saved)
        static = self._static(table)
        snapshot: Any = None if static is None else static.current_snapshot()
        while snapshot is not None and static is not None:
            text = snapshot.summary.additional_properties.get("tierfs.offsets")
            if text is not None:
                return offset_texts.unpacked(text)
            snapshot = static.snapshot_by_id(snapshot.parent_snapshot_id)
        return None

    def _rows(self, table: str) -> list[dict[str, Any]]:
        if self.kind == "iceberg":
            static = self._static(table)
            return [] if static is None else list(static.scan().to_arrow().to_pylist())
        self._publish(table)
        if not list(self._directory(table).glob("**/rows-*.parquet")):
            return []
        found = duckdb.read_parquet(
            f"{self._directory(table)}/**/rows-*.parquet", hive_partitioning=True, union_by_name=True
        )
        return list(found.to_arrow_table().to_pylist())

    def _publish(self, table: str) -> None:
        """Do with the last round of a directory what the next run does first."""
        directory = self._directory(table)
        document = json.loads(sorted((directory / "_tierfs" / "rounds").glob("*.json"))[-1].read_text())
        staged = directory / "_tierfs" / document["staged"]
        for inner, name in document["files"]:
            if document["staged"] and (staged / inner).exists() and not (directory / name).exists():
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                (directory / name).hardlink_to(staged / inner)
        for name in document["removed"]:
            (directory / name).unlink(missing_ok=True)

    def _directory(self, table: str) -> Path:
        return self.root / ("lake" if table == "web" else "lake_bad")

    def _static(self, table: str) -> StaticTable | None:
        metadata = self.root / "warehouse" / "logs" / table / "metadata"
        if not (metadata / "version-hint.text").exists():
            return None
        # The hint may be behind: a kill came between the new metadata and it.
        newest = max(metadata.glob("v*.metadata.json"), key=lambda path: int(path.name[1:].split(".")[0]))
        return StaticTable.from_metadata(str(newest))


def _everything(offset: StreamOffset) -> StreamOffset:
    return StreamOffset(offset.store, offset.read, 1 << 62)


def _workers(cluster: SparkCluster) -> list[int]:
    return processes_in(cluster.directory)


def _of_kind(victim: str, pids: Sequence[int]) -> list[int]:
    """Those that are the JVM of a driver, JVMs of executors, or their Python."""
    lines = {pid: _command_line(pid) for pid in pids}
    if victim == "executor":
        return [pid for pid, line in lines.items() if "CoarseGrainedExecutorBackend" in line]
    if victim == "JVM":
        return [pid for pid, line in lines.items() if "SparkSubmit" in line]
    return [pid for pid, line in lines.items() if "pyspark.daemon" in line or "pyspark/daemon" in line]


def _descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended
            parents.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
    found, waiting = [], [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def _command_line(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _end_all(running: subprocess.Popen[bytes]) -> None:
    """Kill a run, with the processes that it started: those of a killed driver end later by themselves."""
    for pid in [*_descendants(running.pid), running.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()
