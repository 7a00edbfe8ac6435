"""Tests reach the code through its seams: parameters, properties and doubles, not through private names.

A private name in a test holds the inside of a class fast: it cannot be renamed or split without the test.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]

GONE = ("_objects", "_exit", "_store", "_world", "_client", "_registry", "_locks", "_files", "_commit", "_place")
"""They were a third of all private names in tests. Each has a seam now."""

AT_MOST = 387
"""All that is left. A change may lower it."""

BY_NAME = ("setattr", "getattr", "delattr", "hasattr", "object")
"""Calls that name an attribute by a string; the last one is `patch.object`."""

HOME = "children.py"
"""Holds the one `os._exit`, which is no private name of anything."""


PUBLIC = ("_", "_replace", "_asdict")
"""The last two are methods of any named tuple."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def private_names(tree: ast.Module) -> Iterator[str]:
    """Names of other classes and modules that begin with an underscore: read, set, named by a string, or imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls"):
            yield node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in BY_NAME:
            texts = [word.value for word in node.args[:2] if isinstance(word, ast.Constant)]
            yield from (text.rpartition(".")[2] for text in texts if isinstance(text, str))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tierfs"):
            yield from (alias.name for alias in node.names)


def counted() -> Counter[str]:
    paths = [path for path in TESTS.rglob("*.py") if path.name != HOME]
    trees = (ast.parse(path.read_text()) for path in paths)
    return Counter(name for tree in trees for name in private_names(tree) if is_private(name))


def test_names_that_have_a_seam_are_gone_from_tests() -> None:
    assert {name: count for name, count in counted().items() if name in GONE} == {}


def test_private_names_in_tests_do_not_become_more() -> None:
    counts = counted()
    assert counts.total() <= AT_MOST, counts.most_common(20)


def test_each_way_to_a_private_name_is_counted() -> None:
    ways = (
        "store._locks",
        "patch.setattr(module, '_client', None)",
        "patch.object(Engine, '_commit')",
        "patch.setattr('tierfs.engine._place', 1)",
        "from tierfs.engine import _registry",
    )
    for way in ways:
        assert any(name in GONE for name in private_names(ast.parse(way))), way
