"""A package's __init__.py says what the package is, in 3 to 20 lines, and exports in sorted order."""

from __future__ import annotations

import ast
from functools import cache
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


def test_exports_are_what_others_import(package: ast.Module, request: pytest.FixtureRequest) -> None:
    """Modules that others import, and names that documents show; the rest is inside (pyproject.toml protects it)."""
    folder = Path(request.node.callspec.params["package"]).parent
    here = ".".join(folder.relative_to(ROOT).parts)
    submodules = {path.stem for path in folder.iterdir() if is_module(path)}
    used = {parts[0] for name, parts in imported_below(here) if not f"{name}.".startswith(f"{here}.")}
    if here != "tierfs":
        assert sorted(submodules & used) == sorted(submodules & set(exported_names(package)))


def is_module(path: Path) -> bool:
    if (path / "__init__.py").exists():
        return True
    return path.suffix == ".py" and not path.stem.startswith("__") and not path.stem.endswith("_pb2")


def imported_below(package: str) -> list[tuple[str, list[str]]]:
    """Return the imports below a package by its modules: dotted name, and the rest of the imported name."""
    found = []
    for name, module in imports():
        if module.startswith(f"{package}."):
            found.append((name, module.removeprefix(f"{package}.").split(".")))
    return found


@cache
def imports() -> list[tuple[str, str]]:
    """Every import between modules of tierfs; of a name, as if it were a submodule too."""
    found = []
    for path in sorted((ROOT / "tierfs").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                found += [(name, f"{node.module}.{alias.name}") for alias in node.names]
    return found


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
