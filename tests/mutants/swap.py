"""Other code for functions that were imported already."""

from __future__ import annotations

import ast
import gc
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

from tests.mutants.ledger import SafetyLine

PROBE = "__tierfs_probe__"
"""The name in builtins of the function that a probe calls."""


def mutate(line: SafetyLine) -> int:
    """Take away what a safety line does, in this process; return how many functions changed."""
    return _swap(line.module, line.path, compile(line.mutated(), str(line.path), "exec"))


def place_probes(module: str, path: Path, numbers: dict[int, list[int]]) -> None:
    """Let the functions that hold the lines of a file report, when called, what `numbers` has for each line."""
    tree = ast.parse(path.read_text())
    for line, reported in numbers.items():
        around = [
            node
            for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and node.lineno <= line <= (node.end_lineno or 0)
        ]
        assert around, f"{path}:{line} is in no function"
        body = max(around, key=lambda node: node.lineno).body
        probes = ast.parse("\n".join(f"{PROBE}({number})" for number in reported)).body
        body[:] = [*probes, *body]
    _swap(module, path, compile(ast.fix_missing_locations(tree), str(path), "exec"))


def _swap(module: str, path: Path, code: CodeType) -> int:
    importlib.import_module(module)
    swapped = 0
    new = _others(compile(path.read_text(), str(path), "exec"), code)
    for function in gc.get_objects():
        if type(function) is not FunctionType or function.__code__.co_filename != str(path):
            continue
        other = new.get(_identity(function.__code__))
        # A function that closes over names can only take code that closes over the same.
        if other is None or other.co_freevars != function.__code__.co_freevars:
            continue
        swapped += _behaves(other) != _behaves(function.__code__)
        function.__code__ = other
    return swapped


def _others(old: CodeType, new: CodeType) -> dict[tuple[object, ...], CodeType]:
    """Return the new code of each function; by its place in the file, as all lambdas have one name."""
    before, after = list(_functions(old)), list(_functions(new))
    if [name for name, _ in before] == [name for name, _ in after]:
        return {_identity(one): other for (_, one), (_, other) in zip(before, after, strict=True)}
    named = dict(after)
    return {_identity(one): named[name] for name, one in before if name in named and not name.endswith("<lambda>")}


def _identity(code: CodeType) -> tuple[object, ...]:
    return code.co_qualname, code.co_firstlineno, code.co_code


def _functions(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_qualname, constant
            yield from _functions(constant)


def _behaves(code: CodeType) -> tuple[object, ...]:
    """Return what distinguishes code but for the lines it stands in."""
    constants = tuple(_behaves(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts)
    return code.co_code, code.co_names, constants
