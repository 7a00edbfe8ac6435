"""Code in prose: the command lines and names in pages, and in the program's own texts.

A page has them in fenced blocks and between backticks; the program in its strings, which are help, errors, remedies
and docstrings.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click

from tierfs.faces.cli.command_table import SECTIONS
from tierfs.faces.cli.main import cli
from tierfs.faces.cli.session import Session

ROOT = Path(__file__).parents[2]

DESIGN = ROOT / "docs/design"
"""Notes of their time: they may name what a verb was called then."""
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
MANUAL = tuple(page for page in PAGES if page.parent != DESIGN)
CHANGES = ROOT / "CHANGELOG.md"

COMMANDS = {name for section in SECTIONS.values() for name in section}
OF_UNIX = {"cat", "du", "ls", "mount", "rm", "top", "umount"}
"""Commands of tierfs and of the machine: alone between backticks they are the machine's."""

FILLED_IN = "…"
VALUE = "VALUE"
"""Stands for what is filled in."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_PARAGRAPH = re.compile(r"(?:.+\n?)+")
_PROGRAM = re.compile(r"(?<![\w./'=-])(?<!mount -t )tierfs(?= )")
_SHELL = re.compile(r"[;|&()<>#]+")
_ORDER = re.compile(r"(?:^|[:(`]\s*|\b(?:run|see|with|by) )tierfs (?=[\w…-])")
_SENTENCE = re.compile(r"[;,`'\"()|#\n]|[:.](?:\s|$)")


@dataclass(frozen=True, slots=True)
class Code:
    """A piece of code in prose, and its place as `file:line`."""

    where: str
    text: str
    language: str = ""
    """Of a line of a fenced block."""


def of_page(page: Path) -> Iterator[Code]:
    """Yield the code of one page: lines of blocks, joined to those that continue them, and texts between backticks."""
    name, text = page.relative_to(ROOT), page.read_text()
    for fence in _FENCE.finditer(text):
        line = text.count("\n", 0, fence.start(2)) + 1
        for number, content in enumerate(fence[2].replace("\\\n", "  ").splitlines(), line):
            yield Code(f"{name}:{number}", content.strip(), fence[1] or "text")
    rest = _FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text)
    for paragraph in _PARAGRAPH.finditer(rest):
        for span in _SPAN.finditer(paragraph[0]):
            line = rest.count("\n", 0, paragraph.start() + span.start()) + 1
            yield Code(f"{name}:{line}", " ".join(span[1].split()))


@cache
def of_pages() -> tuple[Code, ...]:
    """Return the code of all pages but the changelog, which also names what was before."""
    return tuple(code for page in PAGES for code in of_page(page))


@cache
def of_program() -> tuple[Code, ...]:
    """Return every string of the program, docstrings included; what a text leaves open is an ellipsis."""
    return tuple(
        Code(f"{path.relative_to(ROOT)}:{line}", text)
        for path in sorted((ROOT / "tierfs").rglob("*.py"))
        if not path.name.endswith("_pb2.py")
        for line, text in strings(ast.parse(path.read_text()))
    )


def said(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield each text that the code below a node can print, with its line: strings of several words, not docstrings."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if isinstance(node, ast.Constant | ast.JoinedStr):
        yield from ((line, text) for line, text in strings(node) if " " in text.strip())
    else:
        for child in ast.iter_child_nodes(node):
            yield from said(child)


def strings(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield each string below a node with its line, as a whole."""
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else FILLED_IN for part in node.values)
        yield node.lineno, "".join(map(str, parts))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.lineno, node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from strings(child)


def lines_of_page(code: Code) -> Iterator[list[str]]:
    """Yield the words of each command line of tierfs in the code of a page."""
    for start in _PROGRAM.finditer(code.text):
        yield words(code.text[start.start() :])
    alone = words(code.text) if not code.language and FILLED_IN not in code.text else []
    if len(alone) > 1 and alone[0] in COMMANDS - OF_UNIX and not code.where.startswith("docs/design/"):
        yield ["tierfs", *alone]


def lines_of_program(text: str) -> Iterator[list[str]]:
    """Yield the words of each command line that a text of the program gives, as far as the sentence goes."""
    for start in _ORDER.finditer(text):
        sentence = _SENTENCE.split(text[start.end() :], maxsplit=1)[0]
        yield ["tierfs", *words(sentence.replace(FILLED_IN, VALUE))]


def words(line: str) -> list[str]:
    """Split a command line as a shell does; it ends where the next command begins, or a comment, or what is open."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    split = []
    try:
        for word in lexer:
            if _SHELL.fullmatch(word) or word.startswith(FILLED_IN):
                break
            split.append(word)
    except ValueError:  # an apostrophe of prose
        return line.split()
    return split


def command_of(line: list[str]) -> tuple[str, list[str]]:
    """Return the command that the words name, as `ledger append`, and its arguments, options left out.

    Raises click's UsageError for a command or an option that does not exist. Values are not looked at, and the last
    option may be named without its own.
    """
    parent: click.Context | None = None
    command: click.Command = cli
    name, *rest = line
    path: list[str] = []
    while True:
        context = click.Context(command, info_name=name, parent=parent, obj=Session(), **command.context_settings)
        try:
            values, rest, order = command.make_parser(context).parse_args(list(rest))
        except click.BadOptionUsage:
            return " ".join(path), []
        if not isinstance(command, click.Group):
            given = (values[param.name] for param in order if isinstance(param, click.Argument))
            flat = [word for each in given for word in (each if isinstance(each, tuple | list) else [each])]
            return " ".join(path), [*map(str, flat), *rest]
        if not rest:
            return " ".join(path), []
        try:
            resolved, inner, rest = command.resolve_command(context, rest)
        except click.exceptions.Exit:  # `tierfs help`
            return "", []
        assert inner is not None
        assert resolved is not None
        path.append(resolved)
        parent, command, name = context, inner, resolved


def refused(line: list[str]) -> str | None:
    """Return why tierfs takes no such command line; None for one that it takes."""
    try:
        command_of(line)
    except click.UsageError as exc:
        return exc.format_message()
    return None


def too_many(line: list[str]) -> bool:
    """Return whether the command takes fewer arguments than these."""
    name, rest = command_of(line)
    return bool(rest) and _takes(name) < len(rest)


@cache
def _takes(name: str) -> float:
    command, context = cli, click.Context(cli, info_name="tierfs", obj=Session())
    for part in name.split():
        inner = command.get_command(context, part) if isinstance(command, click.Group) else None
        assert inner is not None
        command, context = inner, click.Context(inner, info_name=part, parent=context, obj=Session())
    counts = [param.nargs for param in command.params if isinstance(param, click.Argument)]
    return float("inf") if -1 in counts else sum(counts)


def tables(page: Path) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield the tables of a page: the row of its titles, and the cells of each other row."""
    for block in re.findall(r"(?:^\|.*\n)+", page.read_text(), re.MULTILINE):
        title, _, *rows = block.splitlines()
        yield title, [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def rows_of(page: Path, title: str) -> list[list[str]]:
    """The rows of the one table of a page whose title begins so."""
    (rows,) = (rows for shown, rows in tables(page) if shown.startswith(title))
    return rows


def spans(cell: str) -> list[str]:
    """Return the texts between backticks in a cell of a table."""
    return [span[1] for span in _SPAN.finditer(cell)]
