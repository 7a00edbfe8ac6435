"""Packages that are missing: the error names them, and what installs them."""

from __future__ import annotations

import shlex
import sys
from importlib import metadata

import pytest

from tierfs.base.system.extras import MissingPackage, install, needed_by

LINES = [
    "zstandard<1,>=0.25",
    "zstandard-more>=3",
    'pyarrow>=18; extra == "spark"',
    'pyspark<5,>=4.0; extra == "spark"',
]


def words(command: str) -> list[str]:
    """Return what the command installs."""
    python, wanted = command.split(" -m pip install ")
    assert python == shlex.quote(sys.executable)
    return shlex.split(wanted)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda _: LINES)


@pytest.mark.usefixtures("installed")
def test_a_package_that_is_always_needed_is_installed_with_its_bounds() -> None:
    assert words(install(None, "zstandard")) == ["zstandard<1,>=0.25"]


@pytest.mark.usefixtures("installed")
def test_an_extra_is_installed_with_all_its_packages() -> None:
    assert words(install("spark")) == ["pyarrow>=18", "pyspark<5,>=4.0"]


@pytest.mark.usefixtures("installed")
def test_a_package_that_this_installation_does_not_know_comes_with_tierfs() -> None:
    [wanted] = words(install(None, "cramjam"))
    assert "[" not in wanted
    assert "cramjam" not in wanted


def test_a_module_of_tierfs_itself_is_no_missing_package() -> None:
    with pytest.raises(ModuleNotFoundError) as raised, needed_by("a test"):
        import tierfs.nowhere  # noqa: F401
    assert not isinstance(raised.value, MissingPackage)
