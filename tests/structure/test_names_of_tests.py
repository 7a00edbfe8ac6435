"""A test's name is a sentence with its subject: a report of failures shows it without its neighbours."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

OPENING = re.compile("test_(it|its|they|so|but|and|nor|the_same|neither|others|one|both|none|that|this|then|also)_")
"""Words that refer to something before them, or count what is not named."""

LEAST_WORDS = 3


def defined_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name


def lacks_its_subject(name: str) -> bool:
    return OPENING.match(name) is not None or len(name.removeprefix("test_").split("_")) < LEAST_WORDS


def test_each_test_names_its_subject() -> None:
    names = [f"{path.relative_to(TESTS)}::{name}" for path in TESTS.rglob("test_*.py") for name in defined_in(path)]
    assert len(names) > 2500
    assert [name for name in names if lacks_its_subject(name.partition("::")[2])] == []


@pytest.mark.parametrize("name", ["test_its_own_bit_is", "test_the_same_in_a_bucket", "test_golden_bytes"])
def test_a_name_without_a_subject_is_seen(name: str) -> None:
    assert lacks_its_subject(name)
