"""`make release` refuses what may not be released, installs what is locked alone, and a version is in one place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.structure.repository import ROOT, Repository
from tierfs import __version__

SCRIPT = "mount_helpers/release"
CHANGES = "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-12-01\n\n### Stores\n\n- A store.\n"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A clone that may be released."""
    repository = Repository(tmp_path / "clone", SCRIPT)
    repository.write("tierfs/__init__.py", '__version__ = "0.1.0"\n')
    repository.write("CHANGELOG.md", CHANGES)
    commit(repository)
    return repository


def commit(repository: Repository) -> None:
    repository.run("git", "add", "--all")
    repository.run("git", "commit", "-q", "-m", "release: 0.1.0")


def may_be_released(repository: Repository, *, because: str = "") -> None:
    """Check that the script refuses this state for the reason; without a reason, that it does not."""
    printed = repository.run(SCRIPT, "--may", code=int(bool(because)))
    assert because in printed
    assert bool(printed) == bool(because)


def test_a_clean_commit_of_a_new_version_with_its_changes_may_be_released(repository: Repository) -> None:
    may_be_released(repository)


@pytest.mark.parametrize("name", ["CHANGELOG.md", "a-new-file"])
def test_a_tree_that_is_not_clean_is_not_released(repository: Repository, name: str) -> None:
    (repository.path / name).write_text("something else\n")
    may_be_released(repository, because="the tree is not clean")


def test_a_version_that_has_a_tag_is_not_released_again(repository: Repository) -> None:
    repository.run("git", "tag", "v0.1.0")
    may_be_released(repository, because="v0.1.0 is a tag already")


@pytest.mark.parametrize(
    ("old", "new", "because"),
    [
        ("## [0.1.0] ", "## [0.1.1] ", "no section [0.1.0]"),
        ("### Stores\n\n- A store.\n", "", "no section [0.1.0], or an empty one"),
        ("[Unreleased]\n", "[Unreleased]\n\n### Fixed\n\n- A fault.\n", "move what is under [Unreleased] to [0.1.0]"),
    ],
)
def test_a_version_without_its_changes_is_not_released(
    repository: Repository, old: str, new: str, because: str
) -> None:
    assert old in CHANGES
    repository.write("CHANGELOG.md", CHANGES.replace(old, new))
    commit(repository)
    may_be_released(repository, because=because)


def test_an_environment_of_a_release_has_what_is_locked_alone() -> None:
    lines = re.findall(r'^.*(?:"\$\{pip\[@\]\}"|-m pip .*(?:install|wheel) -).*$', (ROOT / SCRIPT).read_text(), re.M)
    assert len(lines) == 4
    assert [line for line in lines if "--require-hashes" not in line and "--no-deps --no-index" not in line] == []


def test_the_test_that_a_release_runs_exists() -> None:
    named = re.findall(r"(tests/\S+\.py)::(\w+)", (ROOT / SCRIPT).read_text())
    assert len(named) == 1
    assert [name for file, name in named if f"\ndef {name}(" not in (ROOT / file).read_text()] == []


def test_the_version_is_written_in_one_place() -> None:
    """Everything else reads it, or is compared with it by a test; a benchmark says what it measured."""
    compared = {"docs/openapi.json", "docs/places.md", "docs/spark.md", "docs/spark-clusters.md"}
    of_their_time = {"docs/benchmarks.md", "docs/benchmarks/reading.json", "docs/benchmarks/compression.json"}
    others = {"CHANGELOG.md", "docs/RELEASE.md", "tierfs/__init__.py"}
    named = {
        str(path.relative_to(ROOT))
        for folder in ("tierfs", "docs", "mount_helpers")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".md", ".json", ".toml", ""} and path.is_file()
        if __version__ in re.findall(r"(?<![\d.])\d+\.\d+\.\d+(?![\d.])", path.read_text(errors="replace"))
    }
    assert named - compared - of_their_time - others == set()
