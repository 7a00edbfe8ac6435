"""The memory limit of a process, as containers, systemd and Kubernetes show it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tierfs.base.options import memory
from tierfs.base.options.config import ColdSettings, ReadSettings
from tierfs.base.system import memory_limit
from tierfs.base.words.types import MIB

NO_LIMIT_OF_VERSION_1 = str(2**63 - 4096)


@pytest.fixture
def process(tmp_path: Path) -> Path:
    """The process's directory in /proc."""
    path = tmp_path / "proc"
    path.mkdir()
    return path


def shown(process: Path, cgroup: str, *mounted: str) -> None:
    """Let the process be in a group, with these trees mounted: `KIND ROOT OPTIONS`, the n-th at `tree n`."""
    (process / "cgroup").write_text(cgroup)
    rows = (
        f"{30 + n} 23 0:{n} {root} {process.parent}/tree\\040{n} rw shared:9 - {kind} none {options}"
        for n, (kind, root, options) in enumerate(map(str.split, mounted))
    )
    (process / "mountinfo").write_text("\n".join(rows) + "\n")


def group(process: Path, path: str, **files: str) -> Path:
    """Make a control group with these files; one underscore in a name is a dot."""
    directory = process.parent / path
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name.replace("_", ".", 1)).write_text(f"{text}\n")
    return directory


def test_limit_of_a_group_above_counts_if_it_is_less(process: Path) -> None:
    shown(process, "0::/a/b\n", "cgroup2 / rw")
    least = group(process, "tree 0/a", memory_max="3000", memory_current="1000", memory_stat="inactive_file 600")
    group(process, "tree 0/a/b", memory_max="5000", memory_current="400")
    assert memory_limit.find(process) == memory_limit.MemoryLimit(3000, 2600, least)


def test_memory_high_is_a_limit(process: Path) -> None:
    shown(process, "0::/\n", "cgroup2 / rw")
    own = group(process, "tree 0", memory_max="max", memory_high="3000", memory_current="4000")
    assert memory_limit.find(process) == memory_limit.MemoryLimit(3000, 0, own)


def test_limit_of_version_1(process: Path) -> None:
    shown(process, "4:memory:/docker/1\n1:cpu:/\n0::/\n", "cgroup / rw,cpu", "cgroup / rw,memory", "cgroup2 / rw")
    group(process, "tree 1", memory_limit_in_bytes=NO_LIMIT_OF_VERSION_1)
    own = group(process, "tree 1/docker/1", memory_limit_in_bytes="3000", memory_usage_in_bytes="1000")
    (own / "memory.stat").write_text("inactive_file 1\ntotal_inactive_file 500\n")
    assert memory_limit.find(process) == memory_limit.MemoryLimit(3000, 2500, own)


@pytest.mark.parametrize(
    ("own", "root"), [("/docker/1", "/docker/1"), ("/", "/"), ("/../2", "/"), ("/elsewhere", "/docker/1")]
)
def test_limit_in_a_container_whose_tree_begins_with_its_own_group(process: Path, own: str, root: str) -> None:
    shown(process, f"0::{own}\n", f"cgroup2 {root} rw")
    own_group = group(process, "tree 0", memory_max="3000", memory_current="0")
    found = memory_limit.find(process)
    assert found is not None
    assert (found.limit_bytes, found.group.resolve()) == (3000, own_group)


@pytest.mark.parametrize("text", ["max", NO_LIMIT_OF_VERSION_1, ""])
def test_a_word_or_the_largest_number_is_no_memory_limit(process: Path, text: str) -> None:
    shown(process, "4:memory:/\n0::/\n", "cgroup2 / rw", "cgroup / rw,memory")
    group(process, "tree 0", memory_max=text)
    group(process, "tree 1", memory_limit_in_bytes=text)
    assert memory_limit.find(process) is None


def test_no_limit_is_known_without_proc(tmp_path: Path) -> None:
    assert memory_limit.find(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("limit_mib", "budget_mib", "parts"),
    [(64, 16, 1), (272, 48, 4), (512, 128, 12), (1024, 256, 16), (1 << 20, 256, 16)],
)
def test_budgets_fit_the_memory_limit(limit_mib: int, budget_mib: int, parts: int) -> None:
    assert memory.fit_reads(ReadSettings(), limit_mib * MIB).budget_bytes == budget_mib * MIB
    assert memory.fit_uploads(ColdSettings(), limit_mib * MIB).parts_in_parallel == parts


def test_smaller_budgets_stay_within_a_memory_limit() -> None:
    assert memory.fit_reads(ReadSettings(budget_bytes=MIB), 1024 * MIB).budget_bytes == MIB
    assert memory.fit_uploads(ColdSettings(parts_in_parallel=2), 1024 * MIB).parts_in_parallel == 2
