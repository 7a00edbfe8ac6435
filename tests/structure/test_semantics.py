"""Every statement of docs/semantics.md and docs/security.md names a test, and the test is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {"docs/semantics.md": 30, "docs/security.md": 10}
"""Each with a number of tests that it names at least."""
_NAMED = re.compile(r"`(tests/[\w/]+\.(?:py|txt))?(?:::(test_\w+))?`")


def named_tests(page: str) -> list[tuple[str, str]]:
    """File and function of each test a page names, or a transcript; a name without a file is in the one before."""
    found, file = [], ""
    for match in _NAMED.finditer((ROOT / page).read_text()):
        file = match[1] or file
        if match[1] or match[2]:
            found.append((file, match[2] or ""))
    return found


@pytest.mark.parametrize("page", PAGES)
def test_the_tests_are_there(page: str) -> None:
    named = named_tests(page)
    assert len(named) > PAGES[page]
    missing = [f"{file}::{name}" for file, name in named if name and f"def {name}(" not in (ROOT / file).read_text()]
    missing += [file for file, _ in named if not (ROOT / file).is_file()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_every_statement_names_a_test(page: str) -> None:
    text = (ROOT / page).read_text()
    statements = re.split(r"\n\* ", text.split("\n## ", 1)[1])[1:]
    assert [statement for statement in statements if not _NAMED.search(statement)] == []
