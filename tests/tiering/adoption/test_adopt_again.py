"""Adoptions that the holder repeats: set, shown, carried out when they are due, failing visibly, and ended."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import Done, tierfs
from tests.doubles.manual_clock import ManualClock
from tests.tiering.adoption.foreign import cat, write_files
from tests.tiering.adoption.test_growth import LOG, segment
from tests.tiering.adoption.test_rocketmq import posix
from tierfs.app.adopt_again import Readopter
from tierfs.app.store import Store, open_store
from tierfs.base.options.config import BackgroundSettings
from tierfs.base.words.errors import Fenced
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.tables import LOCATIONS
from tierfs.upkeep.holder.failures import Failures

PERIOD_S = 300


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    return write_files(tmp_path / "theirs", {posix(0): b"abc"})


def adopt(store: Path, *words: object, check: bool = True) -> Done:
    return tierfs("-q", "adopt", *words, "--json", store=store, check=check)


class Holder:
    """The holder's part in it, with a clock of its own."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self.failures = Failures(store.metadata, BackgroundSettings())
        self._readopter = Readopter(store, self.failures)

    def look_after(self, delay_s: float) -> None:
        self.clock.advance(delay_s)
        self._readopter.look()


@pytest.fixture
def begun(store: Path, theirs: Path) -> Path:
    adopt(store, theirs, "--into", "mq", "--every", "5min")
    return store


@pytest.fixture
def holder(begun: Path) -> Iterator[Holder]:
    with open_store(begun) as opened, opened.metadata.read() as txn:
        last_ms = max(location.adoption.last_ms for _, location in txn.scan(LOCATIONS))
    clock = ManualClock(last_ms)
    with open_store(begun, clock) as opened:
        yield Holder(opened, clock)


def length(holder: Holder) -> int:
    return segment_of(holder).length


def segment_of(holder: Holder) -> SegmentRecord:
    with holder.store.metadata.read() as txn:
        return directories.segment_by_name(txn, LOG)


def test_the_holder_adopts_what_is_due(holder: Holder, theirs: Path) -> None:
    inode = segment_of(holder).inode
    write_files(theirs, {posix(0): b"abcdef"})
    holder.look_after(PERIOD_S - 1)
    assert length(holder) == 3
    holder.look_after(1)
    assert (length(holder), segment_of(holder).inode) == (6, inode), "it was left unsealed for that"
    write_files(theirs, {posix(6): b"ghi"})
    holder.look_after(1)
    assert length(holder) == 6
    holder.look_after(PERIOD_S)
    assert length(holder) == 9


def test_a_place_that_is_away_is_listed_and_tried_again(
    holder: Holder, theirs: Path, expected_warnings: list[str]
) -> None:
    expected_warnings.append("adopt [0-9]+ failed: .* it is missing now")
    away = theirs.rename(theirs.with_name("away"))
    holder.look_after(PERIOD_S)
    (row,) = [what for what in holder.failures._rows if what.startswith("adopt ")]
    write_files(away, {posix(3): b"def"})
    away.rename(theirs)
    holder.look_after(PERIOD_S)
    assert (length(holder), holder.failures.has(row)) == (6, False)


def test_linked_bytes_that_changed_are_listed(holder: Holder, theirs: Path, expected_warnings: list[str]) -> None:
    expected_warnings.append("adopt [0-9]+ failed: .* differs from the")
    write_files(theirs, {posix(0): b"abXdef"})
    holder.look_after(PERIOD_S)
    (row,) = holder.failures._rows.values()
    assert (row.error_kind, posix(0) in row.error, length(holder)) == ("AlreadyExists", True, 3)


def test_a_fenced_store_ends_the_loop(holder: Holder, theirs: Path) -> None:
    write_files(theirs, {posix(3): b"def"})
    with holder.store.metadata.write() as txn:
        txn.update_store(journal=replace(txn.store.journal, fenced_by_epoch=7))
    with pytest.raises(Fenced):
        holder.look_after(PERIOD_S)


@pytest.mark.parametrize("how", ["stopped", "removed", "only a journal named it"])
def test_what_ends_a_repeated_adoption(holder: Holder, theirs: Path, how: str) -> None:
    store = holder.store
    if how == "stopped":
        done = adopt(store.path, "--stop", "--into", "mq")
        assert done.json == {"stopped": [f"file:{theirs}"]}
    elif how == "removed":
        tierfs("-q", "rm", "-r", "mq", "--yes", store=store.path)
    else:
        with store.metadata.write_notes() as txn:
            for key, location in list(txn.scan(LOCATIONS)):
                txn.put(LOCATIONS, key, replace(location, from_journal=True))
    write_files(theirs, {posix(3): b"def"})
    holder.look_after(PERIOD_S)
    holder.look_after(PERIOD_S)
    assert not holder.failures._rows
    if how != "removed":
        assert length(holder) == 3


def test_status_shows_a_repeated_adoption(begun: Path, theirs: Path) -> None:
    (row,) = tierfs("status", "--json", store=begun).json["adoptions"]
    assert row.pop("last")
    assert row == {"url": f"file:{theirs}", "layout": "rocketmq", "into": "mq", "every_s": PERIOD_S, "allowed": True}
    shown = tierfs("status", store=begun).out
    assert f"file:{theirs} as rocketmq into mq every 5min; last" in shown
    assert "waits for a mount or daemon: tierfs mount, tierfs daemon" in shown
    tierfs("adopt", "--stop", "--into", "mq", store=begun)
    assert tierfs("status", "--json", store=begun).json["adoptions"] == []
    assert tierfs("adopt", "--stop", "--into", "mq", store=begun).out == "no adoption into mq is repeated\n"


def test_another_period_replaces_the_one_before_and_another_directory_is_refused(begun: Path, theirs: Path) -> None:
    adopt(begun, theirs, "--into", "mq", "--every", "1h")
    (row,) = tierfs("status", "--json", store=begun).json["adoptions"]
    assert row["every_s"] == 3600
    refused = adopt(begun, theirs, "--into", "other", "--every", "1h", check=False)
    assert (refused.code, "is adopted into mq as rocketmq every 1h already" in refused.err) == (5, True)
    tierfs("-q", "rm", "-r", "mq", "--yes", store=begun)
    adopt(begun, theirs, "--into", "other", "--every", "1h")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--into", "mq"), "specify a URL or directory"),
        (("{theirs}", "--into", "mq", "--stop"), "--stop needs --into and no other option"),
        (("--into", "mq", "--stop", "--every", "1h"), "--stop needs --into and no other option"),
        (("{theirs}", "--into", "mq", "--every", "0"), "is not between 1s"),
        (("{theirs}", "--into", "mq", "--every", "1h", "--magic", "00:11"), "--every does not support --magic"),
        (("{theirs}/one", "--into", "mq", "--every", "1h"), "is one object"),
        (("--into", "none", "--stop"), "directory none does not exist"),
    ],
)
def test_what_a_repeated_adoption_refuses(store: Path, theirs: Path, words: tuple[str, ...], said: str) -> None:
    write_files(theirs, {"one": b"x"})
    refused = adopt(store, *(word.format(theirs=theirs) for word in words), check=False)
    assert (refused.code in (2, 3), said in refused.err) == (True, True), refused


def test_a_dry_run_remembers_nothing(store: Path, theirs: Path) -> None:
    adopt(store, theirs, "--into", "mq", "--every", "1h", "--dry-run")
    assert tierfs("status", "--json", store=store).json["adoptions"] == []


def test_adopting_by_hand_reads_again_what_became_longer(begun: Path, theirs: Path) -> None:
    block = 131_072
    write_files(theirs, {posix(0): b"abc" + bytes(2 * block)})
    adopt(begun, theirs, "--into", "mq")
    write_files(theirs, {posix(0): b"abX" + bytes(3 * block)})
    refused = adopt(begun, theirs, "--into", "mq", check=False)
    assert "from byte 0 on" in refused.json["errors"][0]["error"]
    assert segment(begun, LOG).length == 3 + 2 * block
    shutil.rmtree(theirs)
    write_files(theirs, {posix(0): b"abc" + bytes(3 * block)})
    adopt(begun, theirs, "--into", "mq")
    assert cat(begun, LOG) == b"abc" + bytes(3 * block)
