"""What is imported is declared, what is declared is locked with hashes, and `make` installs nothing else."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKED = ROOT / "mount_helpers/locked"
STUBS = {"_typeshed", "mypy_boto3_s3"}
"""Imported for the type checker alone."""
PARTS = ("INSTALL_REQUIRES", "FSSPEC", "ADMIN", "HDFS", "GCS", "AZURE", "SFTP", "DELTA")
"""What setup.py makes extras of."""
OF_USERS = ("admin", "fsspec", "spark", "testing", "hdfs", "gcs", "azure", "sftp", "delta")
"""Extras that tierfs itself imports; the others are for developers."""


@cache
def declared() -> dict[str, list[Requirement]]:
    """The requirements of setup.py by extra, "" for those of all."""
    names: dict[str, object] = {}
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
            name = node.targets[0].id
            if name in (
                "INSTALL_REQUIRES",
                "FSSPEC",
                "ADMIN",
                "HDFS",
                "GCS",
                "AZURE",
                "SFTP",
                "DELTA",
                "EXTRAS_REQUIRE",
            ):
                names[name] = eval(compile(ast.Expression(node.value), "setup.py", "eval"), {}, dict(names))
    lists: dict[str, list[str]] = {"": names["INSTALL_REQUIRES"], **names["EXTRAS_REQUIRE"]}  # type: ignore[dict-item]
    return {extra: [Requirement(line) for line in lines] for extra, lines in lists.items()}


@cache
def imported() -> set[str]:
    """Distributions that tierfs imports."""
    distributions, tops = packages_distributions(), set[str]()
    for path in [*ROOT.glob("tierfs/**/*.py"), ROOT / "pyspark_tierfs.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                tops |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                tops.add(node.module.split(".")[0])
    of_users = names_of("", *OF_USERS)
    found = set[str]()
    for top in tops - sys.stdlib_module_names - STUBS - {"tierfs"}:
        # Several share a top: what tierfs imports of `google` is protobuf, and tests bring google.rpc.
        owners = {canonicalize_name(name) for name in distributions[top]}
        found.add(min(owners & of_users or owners))
    return found


def names_of(*extras: str) -> set[str]:
    return {canonicalize_name(one.name) for extra in extras for one in declared()[extra]}


def test_what_is_imported_is_declared() -> None:
    assert imported() - names_of("", *OF_USERS) == set()


def test_what_is_declared_is_imported() -> None:
    assert names_of("", *OF_USERS) - imported() - {"pandas"} == set(), "pandas is what Spark's frames need"


def locked(name: str) -> dict[str, tuple[str, int]]:
    """Version and number of hashes of each package of a list."""
    found, text = {}, (LOCKED / f"{name}.txt").read_text()
    for entry in re.split(r"\n(?=\S)", "\n".join(line for line in text.splitlines() if not line.startswith("#"))):
        match = re.match(r"([a-z0-9-]+)==(\S+)(?: ;[^\\]*)? \\\n", entry)
        assert match is not None, entry
        found[match[1]] = (match[2], len(re.findall(r"--hash=sha256:[0-9a-f]{64}", entry)))
    return found


@pytest.mark.parametrize("name", ["runtime", "dev", "spark", "bench", "site"])
def test_what_is_declared_is_locked_with_hashes(name: str) -> None:
    lines = locked(name)
    assert all(hashes for _, hashes in lines.values())
    for requirement in [*declared()[""], *(declared()[name] if name != "runtime" else [])]:
        if requirement.marker is None or requirement.marker.evaluate(dict(default_environment())):
            version, _ = lines[canonicalize_name(requirement.name)]
            assert version in requirement.specifier, f"{requirement}: run make locks"


def test_lists_agree_and_name_no_place() -> None:
    versions: dict[str, str] = {}
    for path in LOCKED.iterdir():
        assert "://" not in path.read_text()
        for name, (version, _) in locked(path.stem).items():
            assert versions.setdefault(name, version) == version, f"{path.name}: {name}"


def test_make_installs_only_what_is_locked() -> None:
    lines = re.findall(
        r"^.*(?:\bpip\b|\$\(PIP\)).* (?:install|wheel|download) .*$", (ROOT / "Makefile").read_text(), re.M
    )
    assert len(lines) == 5
    assert [line for line in lines if "--require-hashes" not in line and "--no-deps" not in line] == []


@pytest.mark.parametrize("name", ["runtime", "spark", "package"])
def test_the_page_of_licences_names_what_is_installed_for_users(name: str) -> None:
    page = (ROOT / "docs/licences.md").read_text()
    assert [package for package in locked(name) if f"| {package} |" not in page] == []
