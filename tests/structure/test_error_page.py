"""docs/errors.md is that of the program: each error, with its codes and its messages."""

from __future__ import annotations

import errno
import re

import pytest

from tests.structure.error_page import PAGE, TITLE, classes, codes_of, kinds, messages, sections, texts_of, tree
from tests.structure.prose import tables
from tierfs.base.words.errors import TierfsError
from tierfs.faces.cli.main import cli


def test_the_page_of_errors_is_the_programs() -> None:
    before, title, rest = PAGE.read_text().partition(TITLE)
    if not before or title + rest != sections():
        pytest.fail("run: python -m tests.structure.error_page", pytrace=False)


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_an_error_has_its_case_and_a_way_out(kind: type[TierfsError]) -> None:
    case, way = texts_of(kind)
    assert case.endswith(".")
    assert way.endswith(".")


def test_the_tree_at_the_head_of_the_errors_has_their_codes() -> None:
    listed = {name: (code, exit_code) for name, code, exit_code in tree()}
    known = {kind.__name__: (errno.errorcode[kind.errno], kind.exit_code) for kind in classes()}
    assert listed == known


def test_exit_codes_of_errors_are_in_the_table_and_in_the_help() -> None:
    (rows,) = (rows for title, rows in tables(PAGE) if title.startswith("| exit code |"))
    listed = {int(code) for row in rows for code in row[0].split(", ")}
    codes = {codes_of(kind)[0] for kind in classes()}
    assert codes - listed == set()
    assert listed == {int(code) for code in re.findall(r"(?:^|  )\s*(\d+)  ", cli.epilog or "", re.MULTILINE)}


def test_messages_and_kinds_are_found() -> None:
    assert sum(map(len, messages().values())) > 200
    assert "HeldElsewhere" in kinds()["Conflict"]
    pair = ("the store is closed", "open it again: tierfs.open_store(path)")
    assert pair in messages()["Closed"]
