"""Manual pages: one for each command, with its --help text, and those of the programs of mount(8)."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from tierfs.faces.cli import mount_helper
from tierfs.faces.cli.command_table import SECTIONS
from tierfs.faces.cli.commands.man import pages
from tierfs.faces.cli.main import cli
from tierfs.faces.cli.session import Session
from tierfs.mount import options


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return dict(pages())


def test_every_command_has_a_page_with_its_options(found: dict[str, str]) -> None:
    with click.Context(cli, info_name="tierfs", obj=Session()) as ctx:
        for section in SECTIONS.values():
            for name, entry in section.items():
                page = found[f"tierfs-{name}.1"].replace("\\-", "-")
                assert entry.line.rstrip(".") in page
                command = cli.get_command(ctx, name)
                assert command is not None
                options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
                assert all(one.opts[0] in page for one in options), name
    assert "tierfs-ledger-append.1" in found
    assert "6  fenced by a newer owner" in found["tierfs.1"]


def test_programs_of_mount_have_pages_with_all_that_they_take(found: dict[str, str]) -> None:
    page = found["mount.tierfs.8"].replace("\\-", "-")
    for name in (*options._FLAGS, *(f"{name}=" for name in options._VALUES)):
        assert f"\n.B {name}\n" in page
    for name, usage in (("mount", mount_helper.MOUNT_USAGE), ("umount", mount_helper.UMOUNT_USAGE)):
        terms = re.findall(r"^\.B (-.*)$", found[f"{name}.tierfs.8"].replace("\\-", "-"), re.MULTILINE)
        letters = set("".join(re.findall(r"-([a-z]+)", usage)))
        assert {letter for term in terms for letter in re.findall(r"-([a-z])", term)} == letters
        assert found[f"{name}.fuse.tierfs.8"] == f".so man8/{name}.tierfs.8\n"


def test_troff_understands_every_page(found: dict[str, str], tmp_path: Path) -> None:
    lines = [line for page in found.values() for line in page.splitlines()]
    known = (".TH", ".SH", ".PP", ".nf", ".fi", ".TP", ".B ", ".BR", ".so ")
    assert [line for line in lines if line.startswith((".", "'")) and not line.startswith(known)] == []
    assert not any("\b" in line for line in lines)
    if shutil.which("groff") is None:
        pytest.skip("no groff here")
    (tmp_path / "man8").mkdir()
    for name, text in found.items():
        (tmp_path / ("man8" if name.endswith(".8") else ".") / name).write_text(text)
    words = ["groff", "-man", "-Tutf8", "-k", "-ww", "-z", *sorted(map(str, tmp_path.glob("**/*.[18]")))]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == ""
