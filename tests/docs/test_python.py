"""Every example of docs/python.md runs and prints what it says."""

from __future__ import annotations

from pathlib import Path

from tests.docs.blocks import ROOT, Reader


def test_python(tmp_path: Path) -> None:
    reader = Reader(ROOT / "docs/python.md", tmp_path, replace={"/srv/store": str(tmp_path / "store")})
    assert reader.run() > 5
