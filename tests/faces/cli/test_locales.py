"""The same bytes of a name are the same segment in every locale: names are UTF-8."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.mount.waiting import eventually
from tierfs.base.system.places import mounts

pytestmark = [pytest.mark.mount, pytest.mark.slow, pytest.mark.xdist_group(__name__)]

LOCALES = {"C": "", "C.UTF-8": "", "de_DE.ISO-8859-1": "ISO-8859-1", "ja_JP.EUC-JP": "EUC-JP"}
"""Each with the charmap that localedef makes it of; none for those of every machine."""
LIKE_ANOTHER = {"C.UTF-8": "C", "de_DE.ISO-8859-1": "ja_JP.EUC-JP"}
"""Python is in its UTF-8 mode in both, or tierfs starts again with the same bytes in both."""

NAME = "größe/日本"
FILE = "ü~日.log"
PLACE = "kälte日"
BYTES = b"bytes" * 2000
"""An object of its own: a pack's name has none of a segment."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of locales."""
    directory = tmp_path_factory.mktemp("locales")
    for name, charmap in LOCALES.items():
        if charmap and shutil.which("localedef"):
            command = ["localedef", "-i", name.partition(".")[0], "-f", charmap, str(directory / name)]
            subprocess.run(command, check=False, capture_output=True, timeout=60)
    return directory


def variables(made: Path, locale: str, **more: str) -> dict[bytes, bytes]:
    """The environment of a process in a locale, in bytes: those of UTF-8 in each."""
    if LOCALES[locale] and not (made / locale).exists():
        pytest.skip(f"localedef cannot make {locale} here")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "TIERFS_", "PYTHON"))}
    kept |= {"LOCPATH": str(made), "LC_ALL": locale, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    if not LOCALES[locale]:
        del kept["LOCPATH"]
    return {key.encode(): value.encode() for key, value in (kept | more).items()}


class Shell:
    """Runs `tierfs` and Python in a locale, as processes of their own."""

    def __init__(self, env: dict[bytes, bytes], directory: Path) -> None:
        self.env, self.directory = env, directory
        self.store = Path(os.fsdecode(env[b"TIERFS_STORE"]))

    def run(self, *command: str | bytes, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        words = [word if isinstance(word, bytes) else word.encode() for word in command]
        return subprocess.run(
            words, env=self.env, input=stdin, capture_output=True, check=False, cwd=self.directory, timeout=100
        )

    def tierfs(self, *words: str | bytes, stdin: bytes = b"") -> bytes:
        done = self.run(sys.executable, "-m", "tierfs", *words, stdin=stdin)
        assert (done.returncode, done.stderr) == (0, b""), done
        return done.stdout

    def of_any_locale(self, *words: object) -> None:
        """Run a command whose words and output have no name, in the process of the test."""
        tierfs("-q", *words, store=self.store)

    def python(self, code: str) -> bytes:
        done = self.run(sys.executable, "-c", code.encode())
        assert (done.returncode, done.stderr) == (0, b""), done
        return done.stdout


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.whole] * (name in LIKE_ANOTHER)) for name in LOCALES])
def shell(request: pytest.FixtureRequest, made: Path, tmp_path: Path) -> Shell:
    store = tmp_path / "störe"
    return Shell(variables(made, request.param, TIERFS_STORE=str(store)), tmp_path)


def test_a_name_has_the_same_bytes_in_every_locale(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / PLACE).mkdir()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / FILE).write_bytes(b"file")
    shell.tierfs("-q", "init", "--cold-dir", str(tmp_path / PLACE))
    shell.of_any_locale("config", "/", "object_bytes=64KiB", "chunk_bytes=64KiB")
    assert shell.tierfs("--json", "append", NAME, stdin=BYTES) != b""
    shell.tierfs("-q", "ingest", "in", "--into", "größe/in")
    shell.tierfs("-q", "offload")
    shell.of_any_locale("evict")
    assert shell.tierfs("cat", NAME) == BYTES
    assert sorted(shell.tierfs("ls", "größe", "größe/in").decode().split()) == sorted(
        ["größe:", "in/", "日本", "größe/in:", FILE]
    )
    assert json.loads(shell.tierfs("info", "--json", NAME))["segment"] == NAME
    assert any(NAME in str(path) for path in (tmp_path / PLACE).rglob("*"))
    assert shell.tierfs("config", NAME, "chunk_age=9min") != b""
    (tmp_path / "mnt").mkdir()
    shell.tierfs("-q", "mount", str(tmp_path / "mnt"))
    try:
        assert (tmp_path / "mnt" / NAME).read_bytes() == BYTES
        assert (tmp_path / "mnt/größe/in" / FILE).read_bytes() == b"file"
        assert shell.tierfs("cat", str(tmp_path / "mnt" / NAME)) == BYTES
    finally:
        shell.tierfs("-q", "umount", str(tmp_path / "mnt"))
    assert eventually(lambda: all(mount.mountpoint != tmp_path / "mnt" for mount in mounts()))
    shell.tierfs("-q", "rm", "--yes", NAME)
    shell.tierfs("-q", "restore", NAME)
    assert tierfs("cat", NAME, store=shell.store).out.encode() == BYTES


def test_a_program_has_the_names_that_it_gives(shell: Shell, tmp_path: Path) -> None:
    """In a program the locale stays as it is: `open_store` takes its paths as Python does, and names are texts."""
    (tmp_path / "cold").mkdir()
    shell.of_any_locale("init", "--cold-dir", tmp_path / "cold")
    shell.of_any_locale("config", "/", "object_bytes=64KiB", "chunk_bytes=64KiB")
    name = "gr\\u00f6\\u00dfe/\\u65e5\\u672c"
    shell.python(f"import tierfs; s = tierfs.open_store(); s.append('{name}', b'bytes' * 2000); s.offload('{name}')")
    shell.of_any_locale("evict")
    assert shell.tierfs("cat", NAME) == BYTES
    read = f"import tierfs; print(tierfs.open_store().segment('{name}').read() == b'bytes' * 2000)"
    assert shell.python(read) == b"True\n"


def test_bytes_that_are_no_utf8_are_refused_by_name(shell: Shell, tmp_path: Path) -> None:
    shell.of_any_locale("init")
    with open(os.fsencode(tmp_path) + b"/bad\xe9", "wb"):
        pass
    for words in (("append", b"bad\xe9"), ("ingest", b"bad\xe9", "--into", "d"), ("cat", b"bad\xe9")):
        done = shell.run(sys.executable, "-m", "tierfs", *words)
        assert done.returncode in (2, 3), done
        assert b"must be valid UTF-8" in done.stderr, done


def test_what_an_output_cannot_hold_is_escaped(made: Path, tmp_path: Path) -> None:
    env = variables(made, "C.UTF-8", TIERFS_STORE=str(tmp_path / "store"), PYTHONIOENCODING="latin-1")
    shell = Shell(env, tmp_path)
    shell.of_any_locale("init")
    shell.of_any_locale("append", "ü/日")
    assert shell.tierfs("ls", "ü") == b"\\u65e5\n"
