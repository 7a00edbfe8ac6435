"""A package's __init__.py says what the package is, in 3 to 20 lines."""

from __future__ import annotations

import ast
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
