"""Documents and messages are in plain English: no word of the list in tests/structure/words.py."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.structure.prose import MANUAL, ROOT, of_program, said
from tests.structure.words import refused

NOT_YET = {ROOT / "docs/benchmarks.md"}
"""In another language than this one so far."""
PAGES = [page for page in MANUAL if page not in NOT_YET]

WINGS = ("base", "engine", "reading", "mount", "tiering", "upkeep", "app", "faces", "pipeline")
"""Wings whose messages, remedies, log lines and descriptions are in plain English."""
STORED = {
    "linked anew",
    "taken back",
    "left out",
    "repair=mend remedy",
    "mended lost_bytes left",
    "an owner of this tierfs store began this epoch; leave this object here",
}
"""Texts that other programs may compare: values of JSON, and the content of objects."""

_NOT_PROSE = re.compile(r"^```\w*\n.*?^```$|(?<!`)`[^`]+`(?!`)|\]\([^)]*\)", re.MULTILINE | re.DOTALL)


def uses(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield each refused use in a page, with its line: not in code, in a link's target or in what the program says."""
    prose = _NOT_PROSE.sub(lambda code: re.sub(r"[^\n]", "_", code[0]), text)
    for at, words, instead in refused(prose):
        if not is_of_the_program(text, at):
            yield text.count("\n", 0, at) + 1, words, instead


def is_of_the_program(text: str, at: int) -> bool:
    """Whether a place is in a cell of a table that repeats a text of the program."""
    line = text[text.rfind("\n", 0, at) + 1 : text.find("\n", at)]
    column = at - text.rfind("\n", 0, at) - 1
    cell = line[:column].rpartition("| ")[2] + line[column:].partition(" |")[0]
    return line.startswith("|") and cell.strip() in of_the_program()


@cache
def of_the_program() -> str:
    """Every string of the program: tables repeat the texts of settings, and reasons, word for word."""
    return "\n".join(" ".join(code.text.split()) for code in of_program())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_in_plain_english(page: Path) -> None:
    name = page.relative_to(ROOT)
    assert [f"{name}:{line}: {words!r}: write {instead}" for line, words, instead in uses(page.read_text())] == []


def messages(wing: str) -> Iterator[tuple[str, str]]:
    """Yield each text that a wing can print, with its place."""
    for path in sorted((ROOT / "tierfs" / wing).rglob("*.py")):
        if not path.name.endswith("_pb2.py"):
            for line, text in said(ast.parse(path.read_text())):
                yield f"{path.relative_to(ROOT)}:{line}", text


@pytest.mark.parametrize("wing", WINGS)
def test_a_message_is_in_plain_english(wing: str) -> None:
    texts = [(place, text) for place, text in messages(wing) if text not in STORED]
    assert [
        f"{place}: {words!r}: write {instead}" for place, text in texts for _, words, instead in refused(text)
    ] == []


def test_messages_are_the_strings_that_are_not_docstrings() -> None:
    code = (
        '''"""It holds."""\nRULE = "a key"\ndef f():\n    """It tells."""\n    raise E(f"no {x}", remedy="ask it")\n'''
    )
    assert list(said(ast.parse(code))) == [(2, "a key"), (5, "no …"), (5, "ask it")]


@pytest.mark.parametrize(
    "text",
    [
        "status tells of it",
        "the server is asked once",
        "a store that a mount holds",
        "the bytes behind the length",
        "a file beside it",
        "the file lies in the bucket",
        "it goes on by itself",
        "an entry begins there",
        "objects are left out",
        "the error names the holder",
        "a size that is none",
        "it stays as it is",
        "Whoever reads it",
        "What is cold stays.",
    ],
)
def test_a_refused_use_is_found(text: str) -> None:
    assert len(list(refused(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "the holder evicts it before it publishes",
        "a replica lags behind the owner",
        "the task is stored as it is written",
        "segment names that Hadoop skips",
        "a household on the beach",
        "What is lost? Bytes on the disk.",
        "## Who is trusted with what",
        "the understanding of a standard",
    ],
)
def test_another_use_passes(text: str) -> None:
    assert list(refused(text)) == []


def test_code_and_the_programs_texts_are_not_prose() -> None:
    text = (
        "A `hold` is\n```text\nit tells\n```\n[here](#what-a-stranger-tells)\n| a | Another process holds the store: "
        "make a request to it, or wait until it is done. |\nit holds\n"
    )
    assert [line for line, _, _ in uses(text)] == [7]
