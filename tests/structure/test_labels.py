"""Tables and headings of the pages list each line, alarm, reason, attribute and finding that the program has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.structure.prose import (
    ROOT,
    rows_of,
    spans,
)
from tierfs.mount import xattrs
from tierfs.upkeep.check.findings import Kind
from tierfs.upkeep.holder.problem import ProblemKind
from tierfs.upkeep.holder.waits import Wait

MONITORING, RECOVERY = ROOT / "docs/monitoring.md", ROOT / "docs/recovery.md"
STATUS = ROOT / "tierfs/app/status_rows.py"
GC = ROOT / "tierfs/faces/cli/commands/gc.py"


def labels_in(path: Path, functions: str) -> set[str]:
    """The first of each pair in the functions that make the rows of a table."""
    firsts = set()
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef) and re.fullmatch(functions, function.name):
            for pair in ast.walk(function):
                if isinstance(pair, ast.Tuple) and len(pair.elts) == 2:
                    firsts |= set(constants(pair.elts[0]))
    return firsts


def constants(node: ast.expr) -> Iterator[str]:
    """The texts that an expression may be: a text, or one of two."""
    for part in (node.body, node.orelse) if isinstance(node, ast.IfExp) else (node,):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def status_labels() -> set[str]:
    return labels_in(STATUS, "[a-z_]+_rows|_endangered|_budget")


def test_each_line_of_status_has_its_row() -> None:
    assert len(status_labels()) > 25
    rows = {name for row in rows_of(MONITORING, "| line of `status` ") for name in spans(row[0])}
    assert rows == status_labels()


def test_alarms_are_the_problems_of_the_program_worst_first() -> None:
    rows = rows_of(MONITORING, "| problem | |")
    expected = sorted(ProblemKind, key=lambda kind: -kind.gravity)
    assert [(spans(row[0])[0], row[1]) for row in rows] == [(kind.value, kind.gravity.label) for kind in expected]


def test_kinds_of_garbage_are_those_of_the_table() -> None:
    rows = rows_of(MONITORING, "| line | `kind` with `--json`")
    kinds = set(re.findall(r'"kind": "(\w+)"', GC.read_text()))
    assert {spans(row[1])[0] for row in rows} == kinds
    for row in rows:
        assert f'"{spans(row[0])[0].split()[0]}' in GC.read_text(), row[0]


def test_reasons_why_bytes_are_not_cold_are_those_of_the_table() -> None:
    assert {name for row in rows_of(MONITORING, "| `kind` | means |") for name in spans(row[0])} == set(Wait)


def test_attributes_of_a_file_are_those_of_the_table() -> None:
    rows = rows_of(MONITORING, "| `NAME` |")
    assert {name for row in rows for name in spans(row[0])} == {name.decode() for name in xattrs._VALUES}


def test_each_finding_of_check_has_a_section() -> None:
    titles = re.findall(r"^### check says (.+)$", RECOVERY.read_text(), re.MULTILINE)
    explained = {name.strip() for title in titles for name in title.split(",")}
    assert explained == set(Kind)
