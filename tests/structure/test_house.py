"""The house rules that a tool can count: sizes of files and folders, circles, names, and the English of docstrings."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tierfs.base.words import errors
from tierfs.base.words.errors import TierfsError

ROOT = Path(__file__).parents[2]
FREE_RELATIVE = re.compile(r"(?:Who|What|Whoever|Whatever|Whom|Where|Wherever|Which|Whichever|How|Why)\b")
# Rooms in which every module has one header: dotted names, each of a room or of a whole wing.
WINGS_WITH_ONE_HEADER = (
    *("tierfs.pipeline", "tierfs.faces", "tierfs.app", "tierfs.mount", "tierfs.upkeep", "tierfs.tiering"),
    *("tierfs.reading", "tierfs.engine", "tierfs.base"),
)
SENTENCE_END = re.compile(r"(?<=[.;:!?])\s+|\n\n")


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of tierfs by its dotted name, but those that protoc generates."""
    found = {}
    for path in sorted((ROOT / "tierfs").rglob("*.py")):
        if not path.name.endswith("_pb2.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name] = ast.parse(path.read_text())
    return found


@cache
def lengths() -> dict[str, int]:
    """Lines of each module, without the faces of packages."""
    return {name: (ROOT / path_of(name)).read_text().count("\n") for name in modules() if not is_face(name)}


def path_of(name: str) -> str:
    return name.replace(".", "/") + ".py"


def is_face(name: str) -> bool:
    return name.endswith(".__init__")


def test_no_file_is_too_long() -> None:
    assert {name: lines for name, lines in lengths().items() if lines > 450} == {}


def test_a_module_has_one_header() -> None:
    """Imports, loggers, constants, type aliases and type variables stand above the first class or function.

    A second header in the middle begins a second subject, which is a module of its own. A table of the functions or
    classes above it stands after them: an assignment is free if its value names one of these, or such a table.
    """
    late = {}
    for name, tree in modules().items():
        if name.startswith(tuple(f"{wing}." for wing in WINGS_WITH_ONE_HEADER)) and (below := late_headers(tree)):
            late[name] = below
    assert late == {}


def late_headers(tree: ast.Module) -> list[str]:
    defined: set[str] = set()
    late = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            defined.add(node.name)
        elif defined and isinstance(node, ast.Assign | ast.AnnAssign) and names_in(node.value) & defined:
            defined |= names_in(*(node.targets if isinstance(node, ast.Assign) else [node.target]))
        elif defined and isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign):
            late.append(f"line {node.lineno}: {ast.unparse(node).splitlines()[0][:60]}")
    return late


def names_in(*expressions: ast.expr | None) -> set[str]:
    return {part.id for top in expressions if top for part in ast.walk(top) if isinstance(part, ast.Name)}


def test_classes_have_names_of_their_own() -> None:
    """Those of the Python face are named for its users."""
    owners = defaultdict(list)
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not name.startswith("tierfs.faces.python"):
                owners[node.name].append(name)
    shared = {name: found for name, found in owners.items() if len(found) > 1}
    assert len(shared) <= 3, shared


def test_numbers_from_outside_are_ascii() -> None:
    """`\\d` and `isdecimal` accept the digits of every script: only `units.decimal` asks, and checks for ASCII."""
    loose = re.compile(r"\\[dw]|isdigit|isdecimal|isnumeric")
    sources = {name: (ROOT / path_of(name)).read_text() for name in modules()}
    assert [name for name, text in sources.items() if loose.search(text)] == ["tierfs.base.words.units"]


def test_no_circle_of_imports() -> None:
    """Imports inside functions and for type checkers count too."""
    edges = {name.removesuffix(".__init__"): set(imported(tree)) for name, tree in modules().items()}
    state: dict[str, str] = {}

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert state.get(name) != "open", " -> ".join((*trail[trail.index(name) :], name))
        if name in state:
            return
        state[name] = "open"
        for other in sorted(edges[name] - {name}):
            visit(other, (*trail, name))
        state[name] = "done"

    for name in edges:
        visit(name, ())


def imported(tree: ast.Module) -> Iterator[str]:
    known = {name.removesuffix(".__init__") for name in modules()}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tierfs"):
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                found = submodule if submodule in known else node.module
                if found in known:
                    yield found


def test_sentences_name_their_subject() -> None:
    """Fewer than one docstring in a hundred opens a sentence with "Who …", "What …" or another free relative."""
    texts = [text for tree in modules().values() for text in docstrings(tree)]
    bad = [text for text in texts if any(FREE_RELATIVE.match(part) for part in SENTENCE_END.split(text))]
    assert len(bad) / len(texts) < 0.01, bad[:20]


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Docstrings of the module, its classes and functions, and of attributes and constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                value = statement.value if isinstance(statement, ast.Expr) else None
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value.value.strip()


TOLD_ELSEWHERE = re.compile(r"[Rr]aise[sd]? (as|what|the|in)|[Aa]s `|[Ss]ee ")


def test_public_functions_name_the_errors_that_they_raise_themselves() -> None:
    """Those of the command line are its own affair: they end it."""
    known = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, TierfsError)}
    unnamed = []
    for module, tree in modules().items():
        for function in [] if module.startswith("tierfs.faces.cli") else ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) or function.name.startswith("_"):
                continue
            raised = {
                ast.unparse(node.exc.func)
                for node in ast.walk(function)
                if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
            }
            text = ast.get_docstring(function) or ""
            if text and not TOLD_ELSEWHERE.search(text):
                unnamed += [f"{module}: {function.name}: {name}" for name in raised & known if name not in text]
    assert unnamed == []
