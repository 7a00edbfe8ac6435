"""Commands import little: nothing heavy that they do not need, and of tierfs the rooms that they work in."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tierfs as tierfs_package
from tests.commands import tierfs
from tierfs.faces.cli.command_table import SECTIONS

HEAVY = ("boto3", "botocore", "pyfuse3", "pyspark", "pyarrow", "trio", "rich", "pydantic")
TO_LOOK = (*HEAVY, "prometheus_client")
WITHOUT_BYTES = (*TO_LOOK, "awscrt")
WORKS = ("tiering", "upkeep.holder", "app.recovery", "engine.segments.delete", "app.setup.create")
COMMANDS = [entry.target.partition(":")[0] for section in SECTIONS.values() for entry in section.values()]


def imported(program: str, *words: object) -> list[str]:
    """Return the modules that a new process has imported at the end of a program."""
    tell = "import atexit, json, sys\natexit.register(lambda: print(json.dumps(list(sys.modules)), file=sys.stderr))\n"
    command = [sys.executable, "-c", tell + program, *map(str, words)]
    done = subprocess.run(command, input="x", capture_output=True, text=True, check=True)
    names: list[str] = json.loads(done.stderr)
    return names


@pytest.mark.parametrize(
    ("words", "heavy", "most"),
    [
        ("--help", (*HEAVY, *COMMANDS), 21),
        ("pipeline --help", ("pyspark", "pyarrow"), 87),
        ("pipeline scrub --help", ("pyspark", "pyarrow"), 82),
        ("info s", TO_LOOK, 99),  # it explains the plan
        ("ls -l", WITHOUT_BYTES, 85),
        ("du", WITHOUT_BYTES, 84),
        ("info --map s", HEAVY, 97),
        ("status", WITHOUT_BYTES, 156),  # it asks the bucket whose it is
        ("append s", HEAVY, 104),
        ("cat s", (), 129),
    ],
)
def test_a_command_imports_what_it_needs(store: Path, words: str, heavy: tuple[str, ...], most: int) -> None:
    tierfs("append", "s", store=store, stdin=b"x")
    found = imported("from tierfs.faces.cli.main import cli\ncli.main(sys.argv[1:])", "--store", store, *words.split())
    assert [name for name in heavy if name in found] == []
    own = [name for name in found if name.partition(".")[0] == "tierfs"]
    assert len(own) < most
    works = [name for name in own if name.startswith(tuple(f"tierfs.{room}" for room in WORKS))]
    assert not works or words.split(maxsplit=1)[0] in ("status", "info")
    assert "tierfs.upkeep.holder.work" not in own


@pytest.mark.parametrize(
    ("program", "heavy", "most"),
    [
        ("import tierfs", HEAVY, 2),
        ("import tierfs; tierfs.open_store(sys.argv[1]).append('s', b'x')", WITHOUT_BYTES[:-1], 97),
        ("import tierfs; tierfs.open_store(sys.argv[1]).ls()", WITHOUT_BYTES, 74),
    ],
)
def test_a_python_program_imports_what_it_uses(store: Path, program: str, heavy: tuple[str, ...], most: int) -> None:
    found = imported(program, store)
    assert [name for name in heavy if name in found] == []
    assert len([name for name in found if name.partition(".")[0] == "tierfs"]) < most


def test_no_record_compiles_its_methods_when_it_is_imported() -> None:
    root = Path(tierfs_package.__file__).parent
    standard = re.compile(r"^from dataclasses import .*\bdataclass\b", re.MULTILINE)
    found = {str(path.relative_to(root)) for path in root.rglob("*.py") if standard.search(path.read_text())}
    # The decorator itself, and classes without slots.
    own = {"base/bytes/frozen.py"}
    assert found - own == {"faces/cli/session.py", "upkeep/holder/local_work.py", "upkeep/holder/work.py"}


def test_default_settings_need_no_pydantic(store: Path) -> None:
    imports = "import pathlib\nfrom tierfs.base.options import contradictions, settings\n"
    program = f"{imports}settings.load(pathlib.Path(sys.argv[1]), {{}})"
    assert "pydantic" not in imported(program, store / "store.toml")


@pytest.mark.parametrize("word", ["--version", "-V", "version"])
def test_the_version_is_told_without_the_command_line(word: str) -> None:
    assert "click" not in imported("from tierfs.__main__ import main\nmain()", word)
    command = [sys.executable, "-m", "tierfs", word]
    told = [subprocess.run([*command, *more], capture_output=True, check=True).stdout for more in ([], ["--json"])]
    assert told[0] == told[1]  # with another word the command line tells it
