"""Streams whose rows are lost, removed, or of another store: an error that says so, unless losses are passed over."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests import verbs
from tests.mount.conftest import append
from tests.pipeline.reader.reading import store_of
from tests.pipeline.reader.test_stream import LINES, Query, lines, store
from tierfs.app import store as app
from tierfs.app.recovery.recover import recover_store
from tierfs.app.verbs import empty_trash, move
from tierfs.base.bytes.progress import unseen
from tierfs.base.words.errors import DataLoss
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.segments import trash
from tierfs.pipeline.reader.selection import Selection

__all__ = ["store"]


def sealed_again(store: app.Store) -> None:
    store.engine.unseal("z")
    append(store, "z", b"more\n", seal=True)


@pytest.mark.parametrize(
    ("lose", "text", "rows"),
    [
        (
            lambda store: verbs.delete(store, "a", recursive=False),
            r"segment a, read up to 8, was deleted: .* \(it is in the trash: tierfs restore a\)",
            [],
        ),
        (
            lambda store: store.engine.truncate("a", 10, cold_due_ms=0),
            "segment a now starts at 10, but was read up to 8",
            [("a", 10, b"ree")],
        ),
        (lambda store: store.engine.unseal("z"), "segment z was unsealed", [("a", 8, b"three")]),
        (sealed_again, "segment z was unsealed, or restored, and sealed again", [("a", 8, b"three")]),
    ],
    ids=["deleted", "cut", "unsealed", "sealed again"],
)
def test_a_loss_is_an_error_that_can_be_passed_over(
    store: app.Store,
    lose: Callable[[app.Store], None],
    text: str,
    rows: list[object],
    expected_warnings: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    append(store, "a", b"one\ntwo\n")
    append(store, "z", b"done\n", seal=True)
    query = Query(store)
    query.trigger()
    append(store, "a", b"three\n")
    lose(store)
    with pytest.raises(DataLoss, match=text) as caught:
        query.trigger()
    assert "failOnDataLoss" in (caught.value.remedy or "")
    assert re.match("segment [az]", str(caught.value)), "known by name as long as the query runs"
    query.read = replace(query.read, fail_on_data_loss=False)
    query.restart()
    expected_warnings.append(text)
    with caplog.at_level(logging.WARNING):
        assert query.trigger() == rows
        assert query.trigger() is None
    assert len(caplog.records) == 1, "what was skipped is told once"


def test_a_segment_that_was_renamed_or_removed_with_its_directory_is_named(store: app.Store) -> None:
    """A new process knows no earlier list."""
    append(store, "logs/a", b"one\n")
    append(store, "logs/in/b", b"two\n")
    read = replace(LINES, selection=Selection(paths=("logs",), recursive=True))
    query = Query(store, read)
    query.trigger()
    move(store, "logs/a", "else/where")
    query.restart()
    with pytest.raises(DataLoss, match="a segment, read up to 4, was renamed to else/where, which is not read"):
        query.trigger()
    move(store, "else/where", "logs/a")
    verbs.delete(store, "logs/in", recursive=True)
    query.restart()
    with pytest.raises(DataLoss, match=r"segment logs/in/b, .* was deleted: .* tierfs restore logs/in\)"):
        query.trigger()
    empty_trash(store)
    query.restart()
    with pytest.raises(DataLoss, match=r"segment number [0-9]+, read up to 4, was deleted"):
        query.trigger()


@pytest.mark.parametrize("sealed", [False, True])
def test_a_segment_that_was_in_the_trash_while_the_stream_went_on_is_told(store: app.Store, sealed: bool) -> None:
    """Its number says that it was there before the others, which were read."""
    append(store, "b", b"one\n")
    verbs.delete(store, "b", recursive=False)
    append(store, "z", b"two\n")
    query = Query(store)
    assert query.trigger() == [("z", 0, b"two")]
    trash.restore(store.metadata, "b")
    append(store, "b", b"three\n", seal=sealed)
    with pytest.raises(DataLoss, match=r"segment b was unsealed.*, or restored"):
        query.trigger()


@pytest.mark.parametrize("path", ["d", "d/a", "b"])
def test_what_is_still_to_be_taken_apart_is_gone(store: app.Store, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the process that deletes is killed."""
    append(store, "d/a", b"one\n" * 9)
    append(store, "b", b"two\n" * 9)
    query = Query(store)
    query.trigger()
    monkeypatch.setattr("tierfs.engine.segments.delete.BATCH_RECORDS", 1)
    monkeypatch.setattr("tierfs.engine.segments.delete.dismantle_removed", lambda *_, **__: None)
    store.engine.delete(path, recursive=True, cold_due_ms=0)
    with pytest.raises(DataLoss, match="was deleted"):
        query.trigger()


def test_a_batch_whose_segment_was_deleted(store: app.Store, expected_warnings: list[str]) -> None:
    """It began and ended in the batch, which is read again after the deletion."""
    append(store, "a", b"one\n", seal=True)
    append(store, "b", b"two\n", seal=True)
    query = Query(store)
    query.trigger()
    start, end, _ = query.log[0]
    verbs.delete(store, "a", recursive=False)
    query.restart()
    with pytest.raises(DataLoss, match=r"^4 bytes of a batch are missing"):
        query.between(start, end)
    assert query.trigger() is None, "what comes later is not lost"
    query.read = replace(query.read, fail_on_data_loss=False)
    query.restart()
    expected_warnings.append("4 bytes of a batch are missing")
    assert query.between(start, end) == lines("b", b"two")


def test_a_checkpoint_of_another_store(store: app.Store, tmp_path: Path, expected_warnings: list[str]) -> None:
    expected_warnings.append("the checkpoint belongs to store")
    append(store, "a", b"one\n")
    query = Query(store)
    query.trigger()
    with store_of(tmp_path / "other") as other:
        append(other, "b", b"two\n")
        query.store = other
        query.restart()
        with pytest.raises(DataLoss, match="the checkpoint belongs to store"):
            query.trigger()
        query.read = replace(query.read, fail_on_data_loss=False)
        query.restart()
        assert query.trigger() == lines("b", b"two")
        append(other, "b", b"three\n")
        assert query.trigger() == lines("b", b"three", at=4)


def test_bytes_that_a_recovery_lost_are_told_also_after_others_were_appended_there(
    tmp_path: Path, expected_warnings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Else the stream continues in the middle of a line, and never reads those before it."""
    with store_of(tmp_path / "store") as owner:
        append(owner, "a", b"cold\n")
        verbs.offload(owner, "")
        append(owner, "a", b"read, and lost\n")
        query = Query(owner)
        query.trigger()
    recover_store(tmp_path / "new", Place.in_directory(tmp_path / "store/cold"), unseen)
    with app.open_store(tmp_path / "new") as store:
        append(store, "a", b"other bytes, and more\n")
        query.store = store
        query.restart()
        with pytest.raises(DataLoss, match="segment a was read up to 20, and recovered up to 5: the bytes after it"):
            query.trigger()
        start, end, _ = query.log[0]
        with pytest.raises(DataLoss, match="bytes 0 to 20 of a batch are lost: a recovery found segment a up to 5"):
            query.between(start, end)
        query.read = replace(query.read, fail_on_data_loss=False)
        query.restart()
        expected_warnings.append("segment a was read up to 20, and recovered up to 5")
        with caplog.at_level(logging.WARNING):
            assert query.trigger() == [], "the position goes back"
            assert query.trigger() == lines("a", b"other bytes, and more", at=5)
            assert query.trigger() is None


def test_a_sealed_segment_that_a_recovery_found_shorter_is_told_once(
    tmp_path: Path, expected_warnings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """It counts as finished, so no position in it shows that its end is gone."""
    with store_of(tmp_path / "store") as owner:
        append(owner, "a", b"cold\n")
        verbs.offload(owner, "")
        append(owner, "a", b"read, and lost\n", seal=True)
        append(owner, "z", b"kept\n", seal=True)
        verbs.offload(owner, "z")  # so that the journal has the seal
        query = Query(owner)
        assert query.trigger() == lines("a", b"cold", b"read, and lost") + lines("z", b"kept")
    recover_store(tmp_path / "new", Place.in_directory(tmp_path / "store/cold"), unseen)
    with app.open_store(tmp_path / "new") as store:
        query.store = store
        query.restart()
        with pytest.raises(DataLoss, match="segment a was read to its end, and recovered up to 5: bytes of it were"):
            query.trigger()
        query.read = replace(query.read, fail_on_data_loss=False)
        query.restart()
        expected_warnings.append("segment a was read to its end, and recovered up to 5")
        with caplog.at_level(logging.WARNING):
            assert query.trigger() == []
        query.read = replace(query.read, fail_on_data_loss=True)
        query.restart()
        assert query.trigger() is None
        append(store, "b", b"new\n")
        assert query.trigger() == lines("b", b"new")


@pytest.mark.parametrize(
    ("was", "text", "rows"),
    [
        ("open", "segment a was read up to 20, and recovered up to 5", [("t", 7, b"other bytes, and more")]),
        ("finished", "segment a was read to its end, recovered up to 5, and concatenated to t: bytes of it", []),
        ("elsewhere", r"segment a, read up to 5 of 27, was concatenated to o/t, which is not read", None),
        ("sealed", "segment a was read to its end, and recovered up to 5: bytes of it were lost", None),
    ],
)
def test_bytes_that_a_recovery_lost_are_told_also_after_a_concat(
    tmp_path: Path,
    was: str,
    text: str,
    rows: list[object] | None,
    expected_warnings: list[str],
) -> None:
    """The segment is gone, but not what is known of it; `was`: of the source, or of one that is not concatenated."""
    target = "o/t" if was == "elsewhere" else "t"
    with store_of(tmp_path / "store") as owner:
        append(owner, target, b"0\n")
        append(owner, "a", b"cold\n")
        verbs.offload(owner, "")
        append(owner, "a", b"read, and lost\n", seal=was in {"finished", "sealed"})
        query = Query(owner, replace(LINES, selection=Selection(("a",))) if was == "elsewhere" else LINES)
        query.drain()
    recover_store(tmp_path / "new", Place.in_directory(tmp_path / "store/cold"), unseen)
    with app.open_store(tmp_path / "new") as store:
        append(store, "a", b"other bytes, and more\n", seal=True)
        if was != "sealed":
            store.engine.concat(target, "a")
        query.store = store
        query.restart()
        with pytest.raises(DataLoss, match=text):
            query.trigger()
        if was == "open":
            start, end, _ = query.log[0]
            with pytest.raises(
                DataLoss, match=r"^bytes 2 to 22 of a batch are lost: a recovery found segment a up to 5 alone$"
            ):
                query.between(start, end)
        query.read = replace(query.read, fail_on_data_loss=False)
        query.restart()
        expected_warnings.append(text)
        read = [query.trigger() for _ in range(3)]
        assert read[-1] is None
        if rows is not None:
            assert [row for batch in read for row in batch or ()] == rows
