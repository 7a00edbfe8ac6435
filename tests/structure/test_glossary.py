"""Names are words for things: `found` and `one` say nothing, and a `holder` is the process of docs/glossary.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from tests.structure.test_house import modules

# Rooms that still have such names: take a room out once it is done, never put one in.
NOT_YET = {"scan"}

# Rooms that speak of the process; in all others a holder would be the record of an object.
OF_THE_PROCESS = {"app", "cli", "doctor", "fuse", "holder", "store_paths"}


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


def refused(room: str, tree: ast.AST) -> list[str]:
    words = {"found", "one"} if room in OF_THE_PROCESS else {"found", "one", "holder", "holders"}
    return [name for name in bound(tree) if name.strip("_") in words]


@cache
def by_room() -> dict[str, list[str]]:
    """Names that are refused, as `module: name`, for each folder of tierfs and each module beside them."""
    rooms: dict[str, list[str]] = {}
    for module, tree in modules().items():
        room = module.split(".")[1]
        rooms.setdefault(room, []).extend(f"{module}: {name}" for name in refused(room, tree))
    return rooms


def test_no_name_says_nothing() -> None:
    assert {room: names for room, names in by_room().items() if names and room not in NOT_YET} == {}


def test_rooms_that_are_done_leave_the_list() -> None:
    assert [room for room in sorted(NOT_YET) if not by_room()[room]] == []
