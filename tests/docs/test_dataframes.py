"""Every example of docs/dataframes.md runs and prints what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Reader
from tierfs.faces.fsspec import TierfsFileSystem


@pytest.fixture(autouse=True)
def own_instances() -> Iterator[None]:
    """No filesystem of another test, and none for the next."""
    TierfsFileSystem.clear_instance_cache()
    yield
    TierfsFileSystem.clear_instance_cache()


def test_every_example_of_dataframes_runs(tmp_path: Path) -> None:
    reader = Reader(ROOT / "docs/dataframes.md", tmp_path, replace={"/srv/store": str(tmp_path / "store")})
    assert reader.run() == 8
    reader.names["connection"].close()
