"""`tierfs pipeline table` while everything that it needs is killed: the driver, its JVM, executors, the store's holder.

Segments grow meanwhile, and new ones appear. After each death of a driver the table has the lines up to its own offset,
each once; at the end it has all lines. Rounds end between the kills, and each kill aims at a step that few have met. A
start of Spark takes as long as many rounds, so executors and holders die several times in each run.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
from pyiceberg.table import StaticTable

from tests.mount.waiting import eventually
from tests.pipeline.spark.tables import lines_up_to, objects
from tests.reality.table_runs import START, Pace, TableRun
from tests.servers.iceberg_jar import JAR
from tests.servers.spark_cluster import ROOT, SparkCluster, processes_in
from tierfs.app.setup.create import init_store
from tierfs.app.store import Store, open_store
from tierfs.pipeline.reader.stream_plan import StreamOffset
from tierfs.pipeline.spark.tables import offset_texts

FORMATS = ("iceberg", "parquet", "delta")

# About the bytes of one round in the time of one.
_APPEND_S = 0.1
_MOST_LINES = 100
_SEGMENTS = 6

# Of a run, fewer others than this die before its driver or JVM.
_OTHERS = 4
# Rounds between two kills, and those in which a step that is aimed at should come.
_ROUNDS = (1, 2)
_SOON = 10
_THERE_S = 60.0

_MORTAL = ("driver", "JVM")
_REPLACED = ("executor", "executor", "worker", "holder")

# Steps that kills aim at, beside those that are only of some formats.
_AIMS = ("write", "commit", "write bad", "commit bad", "end", "rewrite", "replace")
_MORE_AIMS = {"iceberg": ("expire",), "delta": ("expire",), "parquet": ("publish",)}

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
    met: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Kills by who died, and the step that the run was in."""
    rounds: int = 0
    failed: list[str] = field(default_factory=list)
    """The last words of runs that ended by themselves, after kills of others: too many attempts of a task failed."""
    wrong: list[str] = field(default_factory=list)
    appended: int = 0
    compared: int = 0
    names: set[str] = field(default_factory=set)
    end: threading.Event = field(default_factory=threading.Event)
    pace: Pace = field(default_factory=Pace)

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def kills(self) -> int:
        return sum(self.met.values())

    def told(self) -> str:
        """What was killed in which step, and what was compared."""
        lines = [f"{self.kind}: {self.appended} lines, {self.rounds} rounds, {self.kills} kills, {self.compared} looks"]
        for victim in sorted({victim for victim, _ in self.met}):
            steps = sorted((step, count) for (who, step), count in self.met.items() if who == victim)
            lines.append(f"  {victim}: " + ", ".join(f"{count} in {step}" for step, count in steps))
        lines += [f"  ended by itself: {text}" for text in self.failed]
        return "\n".join(lines)

    def run(self, kills: int) -> TableDrill:
        """Kill so often, then let a run end; look at the rows after each death of a run, and at the end."""
        self.root.mkdir()
        init_store(self.store)
        with SparkCluster(self.root / "cluster") as cluster:
            with open_store(self.store) as store, self._growing(store):
                while self.kills < kills and not self.wrong:
                    self._live(cluster, kills)
                    self._compare(store)
                    print(f"{self.kills} kills, {self.rounds} rounds", file=sys.stderr, flush=True)
            self._until_done(cluster)
        with open_store(self.store) as store:
            self._compare(store, whole=True)
        self.wrong += [f"left: {path}" for path in self._staged()]
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
            lines = [self._line(chosen) for _ in range(chosen.randrange(1, _MOST_LINES))]
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
        words = ["--store", str(self.store), "--json", "pipeline", "table", "logs", "--to", target]
        words += ["--type", "json", "--schema", "n long, at timestamp", "--partition-by", "day(at)", "--compact", *more]
        words += ["--master", cluster.master]
        for setting in _SETTINGS:
            words += ["--conf", setting]
        if self.kind == "iceberg":
            return [*words, "--warehouse", str(self.root / "warehouse"), "--conf", f"spark.jars={JAR}"]
        return [*words, "--format", self.kind]

    def _live(self, cluster: SparkCluster, kills: int) -> None:
        """One run, up to the kill of its driver or JVM. One that ends by itself before any kill is wrong."""
        before, mortal = self.kills, self.chosen.choice(_MORTAL)
        words = self._command(cluster, "--every", "0.3s", "--round-bytes", "64k", "--expire", "20s")
        with self._holder() as holder, TableRun(words, self.root, self.pace) as run:
            try:
                if self._least_met(mortal, (START, *self._aims)) == START:
                    time.sleep(self.chosen.uniform(0.0, self.pace.start_s))
                    self._kill(mortal, self._found(mortal, cluster, run), run, holder)
                else:
                    others = min(self.chosen.randrange(_OTHERS), kills - self.kills - 1)
                    for victim in [*self.chosen.choices(_REPLACED, k=others), mortal]:
                        run.wait_rounds(self.chosen.randint(*_ROUNDS))
                        found = self._found(victim, cluster, run)  # it takes longer than some steps
                        self._aim(victim, run)
                        self._kill(victim, found, run, holder)
                if mortal == "driver":
                    run.wait_gone()
            except TimeoutError as exc:
                self.wrong.append(str(exc))
            self.rounds += run.rounds
            if before == self.kills:
                self.wrong.append(f"a run ended by itself: {run.error}")

    def _aim(self, victim: str, run: TableRun) -> None:
        """Wait until the run is somewhere in the step that such kills met least."""
        step = self._least_met(victim, self._aims)
        run.wait_step(step, _SOON)
        time.sleep(self.chosen.uniform(0.0, self.pace.lasts_s.get(step, 0.0)))

    @property
    def _aims(self) -> tuple[str, ...]:
        return _AIMS + _MORE_AIMS[self.kind]

    def _least_met(self, victim: str, steps: tuple[str, ...]) -> str:
        group = _MORTAL if victim in _MORTAL else (victim,)
        shuffled = self.chosen.sample(steps, len(steps))
        return min(shuffled, key=lambda step: sum(self.met[who, step] for who in group))

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

    def _found(self, victim: str, cluster: SparkCluster, run: TableRun) -> list[int]:
        """Return the processes of a kind, as soon as there is one."""
        found: list[int] = []
        if victim == "holder":
            return found
        eventually(lambda: bool(found.extend(_of_kind(victim, cluster, run)) or found) or run.ended(), _THERE_S)
        return found

    def _kill(self, victim: str, found: list[int], run: TableRun, holder: list[subprocess.Popen[bytes]]) -> None:
        """Kill one of these processes, and note in which step the run was; nothing in a run that has ended."""
        if run.ended():
            self.failed += run.error.splitlines()[-1:]
            return
        with suppress(ProcessLookupError):
            at_s = time.monotonic()
            if victim == "holder":
                holder[-1].kill()
                holder[-1].wait()
                holder.append(self._start_holder())
            elif not found:
                return
            else:
                os.kill(self.chosen.choice(found), signal.SIGKILL)
            self.met[victim, run.step_at(at_s)] += 1

    def _until_done(self, cluster: SparkCluster) -> None:
        with TableRun(self._command(cluster, "--round-bytes", "1m"), self.root, self.pace) as run:
            try:
                run.wait(lambda _: False)
            except TimeoutError as exc:
                self.wrong.append(str(exc))
            if run.process.wait():
                self.wrong.append(run.error)

    def _compare(self, store: Store, *, whole: bool = False) -> None:
        """Note where the rows of a table are not the lines up to its offset."""
        for table, which in (("web", 0), ("web_bad", 1)):
            offset = self._offset(table)
            if offset is None:
                continue
            self.compared += 1
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
        if self.kind == "delta":
            for path in sorted((self._directory(table) / "_delta_log").glob("*.json"), reverse=True):
                entries = [json.loads(line).get("commitInfo", {}) for line in path.read_text().splitlines()]
                for text in (entry["tierfs.offsets"] for entry in entries if "tierfs.offsets" in entry):
                    return offset_texts.unpacked(text)
            return None
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
        if self.kind == "delta":
            import deltalake

            return list(pyarrow.table(deltalake.DeltaTable(self._directory(table)).to_pyarrow_table()).to_pylist())
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

    def _staged(self) -> list[Path]:
        """Return what killed rounds have left where the next run should have removed it."""
        above = self.root / "warehouse" / "logs" if self.kind == "iceberg" else self.root
        marks = "*/data/_tierfs/*" if self.kind == "iceberg" else "lake*/_tierfs/*"
        return [path for path in above.glob(marks) if path.name not in ("rounds", "_tierfs.lock")]

    def _static(self, table: str) -> StaticTable | None:
        metadata = self.root / "warehouse" / "logs" / table / "metadata"
        if not (metadata / "version-hint.text").exists():
            return None
        # The hint may be behind: a kill came between the new metadata and it.
        newest = max(metadata.glob("v*.metadata.json"), key=lambda path: int(path.name[1:].split(".")[0]))
        return StaticTable.from_metadata(str(newest))


def _everything(offset: StreamOffset) -> StreamOffset:
    return StreamOffset(offset.store, offset.read, 1 << 62)


def _of_kind(victim: str, cluster: SparkCluster, run: TableRun) -> list[int]:
    """Return the driver, its JVM, the JVMs of executors, or their Python; a part of a driver's start has none."""
    if victim == "driver":
        return [run.process.pid]
    if victim == "JVM":
        return [pid for pid in run.processes() if "SparkSubmit" in _command_line(pid)]
    lines = {pid: _command_line(pid) for pid in processes_in(cluster.directory)}
    if victim == "executor":
        return [pid for pid, line in lines.items() if "CoarseGrainedExecutorBackend" in line]
    return [pid for pid, line in lines.items() if "pyspark.daemon" in line or "pyspark/daemon" in line]


def _command_line(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""
