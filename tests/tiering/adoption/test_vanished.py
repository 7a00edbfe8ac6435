"""Adopted ledgers and queues that their system deleted are noticed, by the command and in status."""

from __future__ import annotations

from pathlib import Path

from tests.commands import Done, tierfs
from tests.tiering.adoption.foreign import cat, states, write_files
from tests.tiering.adoption.pulsar import TOPIC, attempt, in_files, offloaded
from tests.tiering.adoption.test_growth import LOG, adopt
from tests.tiering.adoption.test_rocketmq import posix

SEVEN, EIGHT = (f"in/{TOPIC}/{number:020d}" for number in (7, 8))


def adopt_ledgers(store: Path, root: Path, *, check: bool = True) -> Done:
    return tierfs("adopt", "--as", "pulsar", root, "--into", "in", "--json", store=store, check=check)


def stuck(store: Path) -> list[tuple[str, str]]:
    troubles = tierfs("status", "--json", store=store).json["troubles"]
    return [(row["name"], row["error"]) for row in troubles]


def test_ledgers_that_pulsar_deleted_are_listed_until_they_are_removed(store: Path, tmp_path: Path) -> None:
    seven, eight = offloaded([b"seven"], 7), offloaded([b"eight", b"more"], 8, uuid=attempt(2))
    root = write_files(tmp_path / "theirs", in_files(seven, eight))
    adopt_ledgers(store, root)
    assert stuck(store) == []
    for key in seven.objects:
        (root / key).unlink()
        (root / f"{key}.json").unlink()
    done = adopt_ledgers(store, root)
    assert states(done) == {EIGHT: "already adopted"}
    assert done.json["vanished"] == [{"name": SEVEN, "bytes": 5, "missing": 1, "first": seven.key}]
    ((name, error),) = stuck(store)
    assert (name, SEVEN in error, "tierfs rm" in error) == ("in", True, True)
    shown = tierfs("status", store=store).out
    assert "vanished in (5 B): since" in shown
    warned = tierfs("adopt", "--as", "pulsar", root, "--into", "in", store=store, check=False)
    assert (warned.code, "1 segment is missing in file:" in warned.err) == (0, True)
    tierfs("-q", "rm", SEVEN, "--yes", store=store)
    assert adopt_ledgers(store, root).json["vanished"] == []
    assert stuck(store) == []


def test_a_ledger_that_comes_back_is_listed_no_more(store: Path, tmp_path: Path) -> None:
    ledger = offloaded([b"seven"], 7)
    root = write_files(tmp_path / "theirs", in_files(ledger))
    adopt_ledgers(store, root)
    for path in list(root.iterdir()):
        path.unlink()
    assert len(adopt_ledgers(store, root).json["vanished"]) == 1
    write_files(root, in_files(ledger))
    done = adopt_ledgers(store, root)
    assert (done.json["vanished"], stuck(store)) == ([], [])
    assert cat(store, SEVEN) == b"seven"


def test_new_ledgers_of_a_topic_are_adopted_beside_the_others(store: Path, tmp_path: Path) -> None:
    root = write_files(tmp_path / "theirs", in_files(offloaded([b"seven"], 7)))
    adopt_ledgers(store, root)
    write_files(root, in_files(offloaded([b"eight"], 8, uuid=attempt(2))))
    assert states(adopt_ledgers(store, root)) == {SEVEN: "already adopted", EIGHT: "adopted"}


def test_the_run_before_a_hole_ends_as_a_truncation(store: Path, tmp_path: Path) -> None:
    root = write_files(tmp_path / "theirs", {posix(0): b"abc"})
    adopt(store, root, "mq")
    (root / posix(0)).unlink()
    write_files(root, {posix(5): b"fgh"})
    done = adopt(store, root, "mq")
    assert states(done) == {LOG: "truncated", f"{LOG}.5": "adopted"}
    assert (done.json["vanished"], stuck(store)) == ([], [])
    assert (cat(store, LOG), cat(store, f"{LOG}.5")) == (b"", b"fgh")
    assert states(adopt(store, root, "mq")) == {f"{LOG}.5": "already adopted"}
