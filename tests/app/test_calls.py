"""Single operations pass few of tierfs's own functions: the counts are exact, and the caps a few above them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.app import calls

# 8 of them read the clocks, bound to a boot, and look whether the store may be written and is the same.
MOST_APPEND = 130
MOST_NEW_SEGMENT = 660
MOST_COLD_READ = 124
MOST_FROM_MEMORY = 46
MOST_RECOVERY = 3400


def totals(counted: dict[str, Counter[str]]) -> list[int]:
    """Return the calls of each operation."""
    return [own.total() for own in counted.values()]


def test_appends_pass_few_functions(tmp_path: Path) -> None:
    warm, new = totals(calls.of_appends(tmp_path / "store"))
    assert warm <= MOST_APPEND
    assert new <= MOST_NEW_SEGMENT


def test_a_cold_read_passes_few_functions(tmp_path: Path) -> None:
    cold, again = totals(calls.of_cold_read(tmp_path / "store"))
    assert cold <= MOST_COLD_READ
    assert again <= MOST_FROM_MEMORY


def test_a_recovery_passes_few_functions(tmp_path: Path) -> None:
    (recovery,) = totals(calls.of_recovery(tmp_path / "stores"))
    assert recovery <= MOST_RECOVERY
