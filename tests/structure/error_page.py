"""Make the sections of docs/errors.md from the errors of the program.

`python -m tests.structure.error_page` writes them. A section has the docstring of its class, the codes that the command
line, a mount and the admin API answer with, and each message that has a remedy of its own.
"""

from __future__ import annotations

import ast
import errno
import inspect
import re
from collections.abc import Iterator
from functools import cache

from tests.structure.prose import ROOT, strings
from tierfs.base.words import errors
from tierfs.base.words.errors import OffsetMismatch, TierfsError
from tierfs.faces.admin.answers import status_of
from tierfs.mount.errors import errno_of

PAGE = ROOT / "docs/errors.md"
UNSEEN = (ROOT / "tierfs/base/words/errors.py", ROOT / "tierfs/faces/admin/answers.py")
"""Files with the tree itself, and with a class that is answered as its base."""
TITLE = "## All errors\n"

_DO = "Do: "
_PAGE_NAMED = re.compile(r"docs/(\w[\w-]*\.md(?:#[\w-]+)?)")
_MEANT = re.compile(r"[a-z]{3}")
"""A message of nothing but what is filled in says nothing here."""


def classes() -> list[type[TierfsError]]:
    """Return the errors of the tree, in the order of the file."""
    return [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, TierfsError) and each is not TierfsError
    ]


def texts_of(kind: type[TierfsError]) -> tuple[str, str]:
    """Return the case and the way out. Raises AssertionError for a class whose docstring does not have both."""
    case, *rest = (" ".join(part.split()) for part in (kind.__doc__ or "").split("\n\n"))
    ways = [part.removeprefix(_DO) for part in rest if part.startswith(_DO)]
    assert len(ways) == 1, f"the docstring of {kind.__name__} needs one paragraph that starts with {_DO!r}"
    return case, ways[0][:1].upper() + ways[0][1:]


def codes_of(kind: type[TierfsError]) -> tuple[int, str, int]:
    """Return the exit code of a command, the errno in a mount and the status of an answer of the admin API."""
    made = kind("", actual_length=0) if issubclass(kind, OffsetMismatch) else kind("")
    return kind.exit_code, errno.errorcode[errno_of(made)], status_of(made)


@cache
def messages() -> dict[str, list[tuple[str, str]]]:
    """Return each message with a remedy of its own, by the class that it is raised with."""
    found: dict[str, set[tuple[str, str]]] = {each.__name__: set() for each in classes()}
    for path in sorted((ROOT / "tierfs").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and (kind := _name_of(node.func)) in found:
                remedies = [word.value for word in node.keywords if word.arg == "remedy"]
                pair = tuple(text for part in (*node.args[:1], *remedies) if (text := _text(part)))
                if len(pair) == 2 and _MEANT.search(pair[0]):
                    found[kind].add((pair[0], pair[1]))
    return {name: sorted(pairs, key=_order) for name, pairs in found.items()}


@cache
def kinds() -> dict[str, list[str]]:
    """Return the classes of the rest of the program that an error may be printed as, by the class of the tree."""
    found: dict[str, list[str]] = {each.__name__: [] for each in classes()}
    for path in sorted((ROOT / "tierfs").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and path not in UNSEEN and not node.name.startswith("_"):
                for base in map(_name_of, node.bases):
                    found.get(base, []).append(node.name)
    return {name: sorted(names) for name, names in found.items()}


def _name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _text(node: ast.expr) -> str:
    """Return a text as it is printed, … for what is filled in; an empty one for what is made elsewhere."""
    if not isinstance(node, ast.Constant | ast.JoinedStr):
        return ""
    return " ".join(next((text for _, text in strings(node)), "").split())


def _order(pair: tuple[str, str]) -> tuple[str, str]:
    return pair[0].lstrip("…: '").lower(), pair[1]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("[", "\\[").replace("_", "\\_")


def section(kind: type[TierfsError]) -> Iterator[str]:
    """Yield the lines of an error's section."""
    case, way = (_PAGE_NAMED.sub(r"[\1](\1)", text) for text in texts_of(kind))
    yield from (f"### {kind.__name__}", "", case, "", way, "")
    if also := kinds()[kind.__name__]:
        yield from (f"Also printed as {', '.join(f'`{name}`' for name in also)}.", "")
    if pairs := messages()[kind.__name__]:
        yield from ("| message | do |", "|---|---|")
        yield from (f"| {_cell(message)} | {_cell(remedy)} |" for message, remedy in pairs)
        yield ""


def sections() -> str:
    """Return the end of the page, from the title on."""
    lines = [TITLE, "| error | exit code | errno in a mount | HTTP status |", "|---|---|---|---|"]
    for kind in classes():
        code, name, status = codes_of(kind)
        lines.append(f"| [{kind.__name__}](#{kind.__name__.lower()}) | {code} | {name} | {status} |")
    lines.append("")
    for kind in classes():
        lines += section(kind)
    return "\n".join(lines[:-1]) + "\n"


def tree() -> list[tuple[str, str, int]]:
    """Return the rows of the tree in the module's docstring: class, errno and exit code."""
    rows = re.findall(r"^ +(\w+) .*\b(E[A-Z]+) +exit (\d+)$", inspect.getdoc(errors) or "", re.MULTILINE)
    return [(name, code, int(exit_code)) for name, code, exit_code in rows]


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text().partition(TITLE)[0] + sections())
