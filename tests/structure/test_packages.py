"""A package's __init__.py says what the package is, in 3 to 20 lines, and exports in sorted order."""

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


def test_exports_are_sorted(package: ast.Module) -> None:
    names = exported_names(package)
    assert names == sorted(names, key=isort_style)


def exported_names(package: ast.Module) -> list[str]:
    """The value of `__all__`, or nothing where the package defines none."""
    for node in package.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
            return list(ast.literal_eval(node.value))
    return []


def isort_style(name: str) -> tuple[int, str]:
    """The order ruff's RUF022 writes: CONSTANTS, then Classes, then the rest."""
    if name.isupper():
        return 0, name
    return (1 if name[0].isupper() else 2), name
