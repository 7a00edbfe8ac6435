"""Ingest of logs that are rotated: a name is not the identity of a file, and what is archived stays."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from tests.commands import Done, tierfs
from tierfs.base.words.types import CRC_BLOCK_BYTES

OLD = "".join(f"{number} of the day before\n" for number in range(20_000)).encode()
assert len(OLD) > 3 * CRC_BLOCK_BYTES


def renamed(log: Path, new: bytes) -> None:
    log.rename(log.with_name("app.log.1"))
    log.write_bytes(new)


def copied_and_truncated(log: Path, new: bytes) -> None:
    shutil.copyfile(log, log.with_name("app.log.1"))
    with log.open("r+b") as file:
        file.truncate()
        file.write(new)


def renamed_by_date(log: Path, new: bytes) -> None:
    log.rename(log.with_name("app.log-20261129"))
    log.write_bytes(new)


NEW = {
    "empty": b"",
    "shorter": b"today\n",
    "as long": OLD[::-1],
    "longer": OLD[::-1] + b"more\n",
    "the same first line": OLD[:22] + b"today\n",
    "longer with the same first line": OLD[:22] + OLD[::-1],
}


ROTATED = [*product((renamed, copied_and_truncated), NEW), (renamed_by_date, next(iter(NEW)))]
"""How, and by what: the date is another name of the same file."""


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    path = tmp_path / "logs"
    path.mkdir()
    (path / "app.log").write_bytes(OLD)
    (path / "other.log").write_bytes(b"1\n")
    (path / "zz.log").write_bytes(b"2\n")
    return path


def ingested(store: Path, logs: Path, *words: str) -> Done:
    return tierfs("ingest", *words, logs, "--into", "hosts/web", store=store, check=False)


def held(store: Path, name: str) -> bytes:
    return tierfs("cat", f"hosts/web/{name}", store=store).out.encode()


@pytest.mark.parametrize(
    ("rotate", "by", "words"),
    [
        *(pytest.param(*rotated, (), id=f"{rotated[1]}-sealed-{rotated[0].__name__}") for rotated in ROTATED),
        *(
            pytest.param(renamed, by, ("--open",), id=f"{by}-open", marks=[pytest.mark.whole] * (by != "longer"))
            for by in NEW
        ),
    ],
)
def test_another_file_of_the_name_is_refused_and_the_others_go_on(
    store: Path, logs: Path, rotate: Callable[[Path, bytes], None], by: str, words: tuple[str, ...]
) -> None:
    new = NEW[by]
    assert ingested(store, logs, "--open").code == 0
    rotate(logs / "app.log", new)
    for name in ("other.log", "zz.log"):
        with (logs / name).open("ab") as file:
            file.write(b"and more\n")
    for _ in range(2):
        told = ingested(store, logs, *words)
        assert told.code == 5
        assert told.err.startswith(f"tierfs: {logs}/app.log is not the file of segment hosts/web/app.log: ")
        assert told.err.endswith(
            "  the segment is unchanged; ingest this file with another --into (rotated logs: see docs/operations.md)\n"
        )
        assert len(told.err.splitlines()) == 2
        assert held(store, "app.log") == OLD
        assert (held(store, "other.log"), held(store, "zz.log")) == (b"1\nand more\n", b"2\nand more\n")
        rotated = next(path for path in logs.iterdir() if path.name.startswith("app.log") and path.name != "app.log")
        assert held(store, rotated.name) == OLD
    assert tierfs("ingest", logs / "app.log", "--into", "hosts/web/next", store=store).code == 0
    assert held(store, "next/app.log") == new


def test_what_is_archived_of_a_second_rotation(store: Path, logs: Path) -> None:
    """By numbers each rotation gives every name to another file; `dateext` gives a name once."""
    assert ingested(store, logs).code == 0
    renamed(logs / "app.log", b"second\n")
    assert ingested(store, logs).code == 5
    (logs / "app.log.1").rename(logs / "app.log.2")
    renamed(logs / "app.log", b"third\n")
    told = ingested(store, logs)
    assert told.err.count(" is not the file of segment ") == 2
    assert (held(store, "app.log"), held(store, "app.log.1"), held(store, "app.log.2")) == (OLD, OLD, OLD)


def test_a_sealed_segment_of_another_file_is_not_to_be_unsealed(store: Path, logs: Path) -> None:
    """The remedy for a file that grew would lead nowhere."""
    assert ingested(store, logs).code == 0
    (logs / "app.log").write_bytes(NEW["longer"])
    assert "unseal" not in ingested(store, logs, "--open").err
    (logs / "app.log").write_bytes(OLD + b"more\n")
    assert "tierfs unseal hosts/web/app.log, then ingest with --open" in ingested(store, logs, "--open").err


def test_a_file_that_was_changed_inside_is_the_same_file(store: Path, logs: Path) -> None:
    assert ingested(store, logs).code == 0
    changed = bytearray(OLD)
    changed[2 * CRC_BLOCK_BYTES] ^= 1
    (logs / "app.log").write_bytes(changed)
    told = ingested(store, logs)
    place = f"{2 * CRC_BLOCK_BYTES} to {3 * CRC_BLOCK_BYTES}"
    assert f"segment hosts/web/app.log already exists and differs from the file in bytes {place}" in told.err
