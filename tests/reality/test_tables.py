"""A few kills of all that a table needs; `python -m tests.reality tables` has many."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.reality.tables import FORMATS, TableDrill
from tests.servers.iceberg_jar import DONE

SEED = os.environ.get("TIERFS_SEED", str(random.randrange(2**32)))

pytestmark = [pytest.mark.spark, pytest.mark.whole, pytest.mark.timeout(600, method="thread")]


@pytest.mark.parametrize("kind", FORMATS)
def test_every_line_is_a_row_once(tmp_path: Path, kind: str) -> None:
    if kind == "iceberg" and not DONE.exists():
        pytest.skip("the jar of Iceberg is not there: make test-deps")
    if kind == "delta":
        pytest.importorskip("deltalake", reason="the package deltalake is not there: make test-deps")
    drill = TableDrill(tmp_path / kind, kind, random.Random(f"{SEED} {kind}")).run(3)
    assert drill.wrong == [], SEED
    assert drill.kills == 3
