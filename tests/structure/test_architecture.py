"""docs/architecture.md names files and functions that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/architecture.md").read_text()
STEPS = re.findall(r"\| `(tierfs/[\w/]+\.py)` \| `(\w+)` \|", TEXT)


def test_files_and_folders_are_there() -> None:
    named = re.findall(r"`((?:tierfs|tests)/[\w/]*(?:\.\w+)?)`", TEXT)
    assert len(named) > 40
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(("file", "function"), STEPS)
def test_a_step_names_a_function_of_its_file(file: str, function: str) -> None:
    assert re.search(rf"\bdef {function}\(", (ROOT / file).read_text())


def test_every_folder_has_its_place_in_the_picture() -> None:
    picture = TEXT.split("```")[1].split()
    folders = {path.name for path in (ROOT / "tierfs").iterdir() if (path / "__init__.py").exists()}
    assert folders - set(picture) == set()
