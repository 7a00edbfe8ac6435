"""tierfs with the packages that `make setup` installs, and no other: every module is imported, every verb is run.

The environment is a real one, so that nothing can be found by another way: its site-packages has the files of the
distributions that mount_helpers/locked/runtime.txt lists, by their own lists of files, and those of tierfs.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import venv
from pathlib import Path
from typing import Self

import pytest

from tests.structure.test_dependencies import locked
from tierfs.faces.cli.command_table import SECTIONS
from tierfs.upkeep.holder import lock

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 90
INSTALL = "-m pip install"
EXTRAS = {
    "tierfs.faces.admin": "starlette uvicorn anyio",
    "tierfs.engine.chunkstore.places": "fsspec asyncssh azure aiohttp requests hdfs_native",
    "tierfs.faces.fsspec": "fsspec",
    "tierfs.pipeline.reader": "numpy pyarrow",
    "tierfs.pipeline.spark": "pyspark py4j pyarrow numpy deltalake",
    "tierfs.engine.testing": "pytest",
    "pyspark_tierfs": "pyspark",
}
"""Rooms that may need more, and what their modules may miss."""

IMPORT_ALL = """
import importlib, json, pkgutil, sys
import tierfs
missing, names = {}, ["tierfs", "pyspark_tierfs"]
names += [module.name for module in pkgutil.walk_packages(tierfs.__path__, "tierfs.", onerror=lambda name: None)]
for name in names:
    if name == "tierfs.__main__":
        continue
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as exc:
        missing[name] = (exc.name, str(exc))
print(json.dumps([names, missing]))
"""

RUN_EACH = """
import gc, importlib, json, os, runpy, sys
import click
from tierfs.base.options.settings import _settings_model
from tierfs.faces.cli.main import cli
for name in cli.list_commands(click.Context(cli)):
    cli.get_command(click.Context(cli), name)
for name in ("app.check", "app.store", "app.verbs", "app.setup.locations", "reading.stream", "upkeep.holder.perform"):
    importlib.import_module("tierfs." + name)
_settings_model()
gc.freeze()
for line in sys.stdin:
    output, words = json.loads(line)
    pid = os.fork()
    if pid == 0:
        streams = [os.open(os.devnull, os.O_RDONLY), os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)]
        for number, fd in enumerate([*streams, streams[1]]):
            os.dup2(fd, number)
        sys.argv[1:] = words
        code = 0
        try:
            runpy.run_module("tierfs", run_name="__main__", alter_sys=True)
        except SystemExit as ended:
            code = ended.code
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
"""Forks for each command, so that the interpreter imports once what all of them need; none of them takes it apart."""

NO_SPARK = ("pyspark", 2)
VERBS: dict[str, tuple[list[str], tuple[str, int] | None]] = {
    "init": (["--cold-dir", "{dir}/cold"], None),
    "ingest": (["{dir}/in", "--into", "logs"], None),
    "follow": (["{dir}/in", "--into", "followed", "--once"], None),
    "append": (["s", "{dir}/in/a"], None),
    "seal": (["s"], None),
    "unseal": (["s"], None),
    "status": ([], None),
    "config": ([], None),
    "completion": (["bash"], None),
    "ls": (["-l"], None),
    "info": (["s"], None),
    "du": ([], None),
    "cat": (["s"], None),
    "tree": ([], None),
    "diff": (["s", "s"], None),
    "sha256sum": (["s"], None),
    "md5sum": (["s"], None),
    "mkdir": (["empty"], None),
    "mv": (["empty", "renamed"], None),
    "offload": ([], None),
    "evict": ([], None),
    "consolidate": ([], None),
    "archive": (["s", "--class", "GLACIER_IR"], ("has no storage classes", 2)),
    "thaw": (["s"], None),
    "clone": (["s", "cloned"], None),
    "report": ([], None),
    "warmup": (["s"], ("read.cache_bytes", 2)),
    "check": ([], None),
    "doctor": ([], None),
    "gc": ([], None),
    "mount": (["{dir}/mnt"], None),
    "top": (["{dir}/mnt", "--once"], None),
    "umount": (["{dir}/mnt"], None),
    "daemon": ([], None),
    "admin": ([], ("starlette", 2)),
    "ledger": (["append", "public/default/t", "--lines", "{dir}/in/a"], None),
    "trim": (["-y", "s", "--before", "1"], None),
    "concat": (["-y", "s", "logs/a"], None),
    "rm": (["-y", "logs/b"], None),
    "restore": (["logs/b"], None),
    "backup": (["{dir}/backup"], None),
    "inspect": (["{dir}/backup"], None),
    "adopt": (["{dir}/foreign", "--into", "adopted"], None),
    "pipeline": (["scrub"], NO_SPARK),
    "replica": (["--cold-dir", "{dir}/cold"], None),
    "standby": ([], None),
    "move": (["--to", "file:{dir}/moved"], None),
    "recover": (["--cold-dir", "{dir}/moved"], None),
}
"""A call of every verb in this order, and what it may miss, in words, with its exit code."""

TABLES = {
    ("lake.logs.t",): "pyspark",
    ("{dir}/table",): "pyspark",
    ("{dir}/table", "--format", "delta"): "deltalake",
}
"""Tables of each format, and the package that is named first."""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment as `make setup` makes it."""
    home = tmp_path_factory.mktemp("runtime")
    venv.EnvBuilder(with_pip=False, symlinks=True).create(home)
    (site,) = home.glob("lib/python*/site-packages")
    for name in locked("runtime"):
        try:
            files = importlib.metadata.files(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # of another system: colorama, cffi
        for file in files or ():
            if ".." not in file.parts:
                target = site / file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(Path(str(file.locate())))
    for name in ("tierfs", "pyspark_tierfs.py"):
        (site / name).symlink_to(ROOT / name)
    own = importlib.metadata.files("tierfs") or ()
    info = next(Path(str(file.locate())).parent for file in own if file.name == "METADATA")
    (site / info.name).symlink_to(info)
    return home / "bin/python"


class Commands:
    """An interpreter that runs one command of tierfs after the other, each in a process that it forks."""

    def __init__(self, python: Path, output: Path) -> None:
        self.output = output
        self.process = subprocess.Popen(
            [python, "-c", RUN_EACH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/", env=of_a_user()
        )

    def run(self, *words: object) -> tuple[int, str]:
        """Return its exit code and what it printed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([str(self.output), [*map(str, words)]]) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline()), self.output.read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=TIMEOUT_S)


def of_a_user() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(("TIERFS_", "PYTHON"))}


def run(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd="/", env=of_a_user()
    )


def test_every_module_is_imported_or_names_a_package_of_its_extra(python: Path) -> None:
    done = run(python, "-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    names, missing = json.loads(done.stdout)
    assert len(names) > 300
    assert missing  # it is the runtime alone
    for name, (package, text) in missing.items():
        room = next((room for room in EXTRAS if name == room or name.startswith(f"{room}.")), None)
        assert room is not None, f"{name}: {text}"
        assert package.partition(".")[0] in EXTRAS[room].split(), f"{name}: {text}"


@pytest.mark.parametrize(
    ("program", "package"),
    [
        ("import tierfs.faces.fsspec", "fsspec"),
        ("import tierfs.testing", "pytest"),
        ("import tierfs.pipeline.spark; tierfs.pipeline.spark.register(None)", "pyspark"),
        ("from tierfs.testing import ChunkStorageSuite", "pytest"),
    ],
)
def test_a_program_is_told_what_to_install(python: Path, tmp_path: Path, program: str, package: str) -> None:
    done = run(python, "-c", program.format(dir=tmp_path))
    assert done.returncode == 1
    assert f"needs the package {package}, which is not installed" in done.stderr
    assert f"{python} {INSTALL} " in done.stderr
    assert "tierfs[" not in done.stderr  # a name that is nobody's on the index


@pytest.mark.mount
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_verb_runs(python: Path, tmp_path: Path) -> None:
    assert set(VERBS) == {name for section in SECTIONS.values() for name in section}
    for name in ("in", "mnt", "cold", "foreign", "moved"):
        (tmp_path / name).mkdir()
    for name in ("in/a", "in/b", "foreign/c"):
        (tmp_path / name).write_text("one\ntwo\n")
    with Commands(python, tmp_path / "output") as commands:
        for verb, (words, lacks) in VERBS.items():
            store = tmp_path / ("replica" if verb == "replica" else "recovered" if verb == "recover" else "store")
            code, output = commands.run("--store", store, verb, *(word.format(dir=tmp_path) for word in words))
            if verb == "daemon":
                os.kill(pid_of(lock.current(store / "locks/holder")), signal.SIGTERM)
            words_missed, expected = lacks or ("", 0)
            assert (code, words_missed in output) == (expected, True), f"{verb}: {output}"
        for words, package in TABLES.items():
            to = [word.format(dir=tmp_path) for word in words]
            code, output = commands.run("--store", tmp_path / "store", "pipeline", "table", "s", "--to", *to)
            assert code == 2, output
            assert f"needs the package {package}, which is not installed" in output
            assert f"{python} {INSTALL} " in output


def pid_of(holder: lock.Holder | None) -> int:
    assert holder is not None
    return holder.pid
