"""The Containerfile: what it names exists, and its image runs without root."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from tests.commands import tierfs

ROOT = Path(__file__).parents[2]
CONTAINERFILE = ROOT / "mount_helpers/container/Containerfile"


def instructions() -> Iterator[tuple[str, str]]:
    """The instructions of the file, in one line each."""
    lines = [line for line in CONTAINERFILE.read_text().splitlines() if line and not line.startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        name, _, rest = line.partition(" ")
        yield name, rest


def test_image_has_two_stages_and_leaves_root() -> None:
    names = [name for name, _ in instructions()]
    assert names.count("FROM") == 2
    last = [*instructions()][len(names) - names[::-1].index("FROM") :]
    assert ("USER", "tierfs") in last
    assert not [rest for name, rest in last if name == "COPY" and "--from=package" not in rest]


def test_commands_of_the_image_exist() -> None:
    text = "\n".join(rest for _, rest in instructions())
    for target in re.findall(r"&& make ([a-z]+)", text):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)
    health = next(rest for name, rest in instructions() if name == "HEALTHCHECK")
    words = shlex.split(health.partition("CMD ")[2])
    assert words[:3] == ["tierfs", "status", "--check"]
    assert "--check" in tierfs("status", "--help").out
    (command,) = (rest for name, rest in instructions() if name == "CMD")
    name, *options = re.findall(r'"([^"]+)"', command)
    assert [option for option in options if option not in tierfs(name, "--help").out] == []
