"""Who wrote the objects of a place, by their names alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import tierfs

UUID = "1a1827eb-d131-4776-9711-5fcba5e499f1"
PLACES = {
    "pulsar": f"{UUID}-ledger-7-index",
    "rocketmq": "cluster/broker/topic/0/COMMIT_LOG/seg-0/chunk-0",
    "pravega": f"scope/stream/0.#epoch.0.E-1-O-0.{UUID}",
    "objects": UUID,
}


def place(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"bytes")
    return root


@pytest.fixture
def store(tmp_path: Path) -> Path:
    tierfs("-q", "init", store=tmp_path / "store")
    return tmp_path / "store"


@pytest.mark.parametrize(("kind", "name"), PLACES.items(), ids=PLACES)
def test_a_place_is_recognised_by_names_that_nobody_else_gives(
    tmp_path: Path, store: Path, kind: str, name: str
) -> None:
    theirs = place(tmp_path / "theirs", "a.log", name)
    done = tierfs("adopt", theirs, "--into", "in", "--dry-run", store=store, check=False)
    assert f"adopting as {kind}, detected by names" in done.err


def test_what_is_said_is_not_recognised(tmp_path: Path, store: Path) -> None:
    theirs = place(tmp_path / "theirs", PLACES["rocketmq"])
    done = tierfs("adopt", theirs, "--as", "objects", "--into", "in", store=store)
    assert f"in/{PLACES['rocketmq']}" in done.out
    assert "by the names" not in done.err


def test_a_single_file_is_an_object(tmp_path: Path, store: Path) -> None:
    theirs = place(tmp_path / "theirs", PLACES["pulsar"])
    done = tierfs("adopt", theirs / PLACES["pulsar"], "--into", "in", store=store, check=False)
    assert "adopting as objects" in done.err
    assert f"in/{PLACES['pulsar']}: adopted" in done.out


def test_places_of_two_kinds_are_refused_together(tmp_path: Path, store: Path) -> None:
    places = [place(tmp_path / kind, PLACES[kind]) for kind in ("rocketmq", "objects")]
    done = tierfs("adopt", *places, "--into", "in", store=store, check=False)
    assert done.code == 2
    assert "is of objects, but an earlier place is of rocketmq" in done.err
    assert tierfs("ls", store=store).out == ""


def test_an_option_of_pulsar_says_who_wrote_the_objects(tmp_path: Path, store: Path) -> None:
    theirs = place(tmp_path / "theirs", "a.log")
    done = tierfs("adopt", theirs, "--into", "in", "--accept-loss", store=store, check=False)
    assert "adopting as objects" not in done.err
    done = tierfs("adopt", theirs, "--into", "in", "--as", "objects", "--accept-loss", store=store, check=False)
    assert (done.code, "are for pulsar" in done.err) == (2, True)
