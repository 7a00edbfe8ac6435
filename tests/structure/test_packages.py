"""A package's __init__.py says what the package is, in 3 to 20 lines."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted((ROOT / "tierfs").rglob("__init__.py"))


@pytest.fixture(params=PACKAGES, ids=[str(path.parent.relative_to(ROOT)) for path in PACKAGES])
def package(request: pytest.FixtureRequest) -> ast.Module:
    return ast.parse(request.param.read_text())


def test_docstring_has_3_to_20_lines(package: ast.Module) -> None:
    lines = (ast.get_docstring(package) or "").splitlines()
    assert 3 <= len(lines) <= 20


WINGS = sorted((ROOT / "tierfs").glob("*/__init__.py"))


@pytest.fixture(params=WINGS, ids=[path.parent.name for path in WINGS])
def wing(request: pytest.FixtureRequest) -> Path:
    """Folder of one wing."""
    folder: Path = request.param.parent
    return folder


def map_of(wing: Path) -> str:
    """Docstring of a wing, its lines joined."""
    return " ".join((ast.get_docstring(ast.parse((wing / "__init__.py").read_text())) or "").split())


def test_a_wing_has_a_map(wing: Path) -> None:
    text = map_of(wing)
    for part in ("Comes in: ", "Goes out: ", "never ", "Open `"):
        assert part in text
    for room in wing.glob("*/__init__.py"):
        assert f"`{room.parent.name}`" in text


def test_a_map_shows_what_is_there(wing: Path) -> None:
    neighbours = {path.stem for path in (ROOT / "tierfs").iterdir()} | {"pyfuse3", "tierfs"}
    for name in re.findall(r"`([a-z_/]+)(?:\.py)?`", map_of(wing)):
        assert (wing / name).is_dir() or (wing / f"{name}.py").is_file() or name in neighbours, name
