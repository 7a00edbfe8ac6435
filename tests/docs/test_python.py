"""Every example of docs/python.md runs and prints what it says.

The package that it writes is installed into a directory of the test; nothing else than the page tells how to write it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Reader

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_every_example_of_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    install = f"{sys.executable} -m pip install -q --no-deps --no-build-isolation --no-index --target {site} ./demo"
    replace = {"/srv/": f"{tmp_path}/", "pip install ./demo": install}
    # Large objects of a `Binding` are those of the tests of conformance.
    env = {"PYTHONPATH": os.fspath(site), "PYTEST_ADDOPTS": "-k 'not 16777217 and not 33554433'"}
    try:
        reader = Reader(ROOT / "docs/python.md", tmp_path, replace=replace, env=env)
        assert reader.run() > 10
    finally:
        sys.modules.pop("tierfs_demo", None)
