"""A cold tier in HDFS against Hadoop's own commands: the same bytes, both ways, whole commands with their starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.measuring import compared, seconds
from tests.servers.hdfs_server import CLASS_PATH, HdfsServer
from tierfs.base.options.config import ColdSettings
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.places.address import connect_place
from tierfs.engine.chunkstore.protocol import Abilities, BufferSource, ObjectPiece

SIZE_BYTES = 512 * MIB
NAME = "s"
_PIECES, _PIECE_BYTES = 8, 8 * MIB


def bench_hdfs(repetitions: int) -> str:
    """Offload against `hdfs dfs -put`, and `cat` of cold bytes against `hdfs dfs -cat`; all of it in memory."""
    with TemporaryDirectory(dir="/dev/shm") as directory:
        return _compared(Path(directory), repetitions)


def _compared(directory: Path, repetitions: int) -> str:
    data = directory / "data"
    with data.open("wb") as file:
        for _ in range(SIZE_BYTES // MIB):
            file.write(os.urandom(MIB))
    server = HdfsServer(directory / "hdfs")
    with server:
        put, cat = _Hadoop(directory, f"{server.words[0]}/put"), {}
        writes: dict[str, Callable[[], float]] = {"hdfs dfs -put": lambda: put.put(data)}
        for scheme in ("webhdfs", "hdfs"):
            ours = _Ours(directory / f"store-{scheme}", getattr(server.root(f"/{scheme}"), scheme), data)
            writes[f"tierfs offload, {scheme}"] = ours.offload
            cat[f"tierfs cat, {scheme}"] = ours.cat
        written = compared(f"Offload to HDFS, {SIZE_BYTES // MIB} MiB", SIZE_BYTES, repetitions, writes)
        read = compared("Read from HDFS", SIZE_BYTES, repetitions, {"hdfs dfs -cat": put.cat, **cat})
    return f"{written}\n{read}"


def bench_hdfs_consolidate(repetitions: int) -> str:
    """Eight objects of 8 MiB become one: joined by CONCAT, and copied by the client and read back, as before it."""
    with TemporaryDirectory(dir="/dev/shm") as directory, HdfsServer(Path(directory) / "hdfs") as server:
        tiers = {
            title: _Pieces(server.root(f"/{number}").webhdfs, may_move=may_move)
            for number, (title, may_move) in enumerate((("copied by the client", False), ("joined by CONCAT", True)))
        }
        rates = {title: tier.consolidate for title, tier in tiers.items()}
        size_bytes = _PIECES * _PIECE_BYTES
        table = compared(f"Consolidation in HDFS, {size_bytes // MIB} MiB", size_bytes, repetitions, rates)
        passed = "".join(f"\n{title}: {tier.client_bytes:,} bytes uploaded again" for title, tier in tiers.items())
    return f"{table}{passed}\n"


class _Pieces:
    """A place with small objects, again for each round."""

    def __init__(self, url: str, *, may_move: bool) -> None:
        self._storage = connect_place(url, "", ColdSettings(), Abilities())
        self._may_move = may_move
        self._round = 0
        self.client_bytes = 0

    def consolidate(self) -> float:
        """Join them, and read the new object back if it is a copy."""
        self._round += 1
        pieces = []
        for number in range(_PIECES):
            stored = self._storage.put(f"{self._round}/{number}", BufferSource(os.urandom(_PIECE_BYTES)))
            pieces.append(ObjectPiece(stored.name, 0, _PIECE_BYTES, stored.etag, may_move=self._may_move))

        def work() -> None:
            made = self._storage.compose(f"{self._round}/all", pieces)
            self.client_bytes += made.client_bytes
            if not made.moved:
                self._storage.read_into(made.name, 0, memoryview(bytearray(made.length_bytes)))

        return seconds(work)


class _Hadoop:
    """Hadoop's client, as its script `hdfs` starts it."""

    def __init__(self, directory: Path, url: str) -> None:
        self._url = url
        self._settings = directory / "settings"
        self._settings.mkdir()
        (self._settings / "core-site.xml").write_text("<configuration/>\n")

    def put(self, data: Path) -> float:
        self._run("-rm", "-f", "-skipTrash", self._url)
        return seconds(lambda: self._run("-put", str(data), self._url))

    def cat(self) -> float:
        return seconds(lambda: self._run("-cat", self._url))

    def _run(self, *words: str) -> None:
        command = ["java", "-cp", f"{self._settings}:{CLASS_PATH}", "org.apache.hadoop.fs.FsShell", *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class _Ours:
    """A store whose cold tier is in HDFS."""

    def __init__(self, store: Path, url: str, data: Path) -> None:
        self._store = store
        self._url = url
        self._data = data
        self._round = 0

    def offload(self) -> float:
        """A store of its own each time."""
        shutil.rmtree(self._store, ignore_errors=True)
        self._round += 1
        self._run("-q", "init", "--cold-url", f"{self._url}/{self._round}")
        self._run("-q", "append", NAME, str(self._data))
        taken_s = seconds(lambda: self._run("-q", "offload", NAME))
        self._run("-q", "evict", NAME)
        return taken_s

    def cat(self) -> float:
        return seconds(lambda: self._run("cat", NAME))

    def _run(self, *words: str) -> None:
        command = [sys.executable, "-m", "tierfs", "--store", str(self._store), *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
