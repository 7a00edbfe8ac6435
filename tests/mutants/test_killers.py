"""The tests that the ledger of safety lines names are collected, with the parameters that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import COLLECTED
from tests.mutants.ledger import ROOT, read_ledger


def test_killers_are_tests_of_their_files(request: pytest.FixtureRequest) -> None:
    """Of the files that this run collected as a whole."""
    cases = request.config.stash[COLLECTED]
    names = cases | {case.split("[")[0] for case in cases}
    in_part = {Path(arg.split("::")[0]).absolute() for arg in request.config.args if "::" in arg}
    only_failed = request.config.getoption("lf", False)
    whole = set() if only_failed else {ROOT / case.split("::")[0] for case in cases} - in_part
    killers = [line.killer for line in read_ledger()]
    assert [each for each in killers if ROOT / each.split("::")[0] in whole and each not in names] == []
