"""Programs import these paths, wherever the code behind them stands."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import fsspec
import pytest

import tierfs


@pytest.mark.parametrize("name", tierfs.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(tierfs, name) is not None


@pytest.mark.parametrize(
    "program",
    [
        "import tierfs.errors; assert issubclass(tierfs.errors.NotFound, tierfs.errors.TierfsError)",
        "from tierfs.errors import NotFound; import tierfs; assert NotFound is tierfs.errors.NotFound",
        "from tierfs import errors; from tierfs.base.words import errors as same; assert errors is same",
        "import tierfs.testing; assert tierfs.testing.ChunkStorageSuite",
        "from tierfs.testing import ChunkStorageSuite; assert isinstance(ChunkStorageSuite, type)",
        "from tierfs import open_store; assert callable(open_store)",
    ],
)
def test_a_new_process_imports_it(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_what_is_no_module_is_refused_as_python_does() -> None:
    for name in ("nothing", "errors.nothing", "testing.nothing"):
        words = [sys.executable, "-c", f"import tierfs.{name}"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert f"ModuleNotFoundError: No module named 'tierfs.{name}'" in done.stderr


def test_fsspec_finds_its_filesystem() -> None:
    (entry,) = entry_points(group="fsspec.specs", name="tierfs")
    assert entry.load() is fsspec.get_filesystem_class("tierfs")
