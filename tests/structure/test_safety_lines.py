"""The ledger of safety lines fits the code; that each is killed shows `make mutants`."""

from __future__ import annotations

from tests.mutants.ledger import ROOT, read_ledger, wrong


def test_each_line_stands_once_in_its_file() -> None:
    assert wrong(read_ledger()) == []


def test_killers_are_there() -> None:
    for line in read_ledger():
        file, _, function = line.killer.split("[")[0].partition("::")
        assert file, f"no test kills: {line.loses}"
        assert f"def {function.split('::')[-1]}(" in (ROOT / file).read_text(), line.killer
