"""Names are words for things: `found` and `one` say nothing, and a `holder` is the process of docs/glossary.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.structure.test_house import modules

# Rooms that speak of the process; in all others a holder would be the record of an object.
OF_THE_PROCESS = ("app", "base.system.store_paths", "faces.cli", "faces.doctor", "mount", "upkeep.holder")


def bound(tree: ast.AST) -> Iterator[str]:
    """Yield each name that is given to something: variables, parameters, attributes, functions and classes."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.alias(asname=str(name)):
                yield name


def refused(module: str, tree: ast.AST) -> list[str]:
    speaks_of_it = f"{module}.".startswith(tuple(f"tierfs.{room}." for room in OF_THE_PROCESS))
    words = {"found", "one"} if speaks_of_it else {"found", "one", "holder", "holders"}
    return [name for name in bound(tree) if name.strip("_") in words]


def test_no_name_says_nothing() -> None:
    assert [f"{module}: {name}" for module, tree in modules().items() for name in refused(module, tree)] == []
