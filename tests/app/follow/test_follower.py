"""What is followed, from where on, and what is reported."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.app.follow.following import Following
from tierfs.app import room
from tierfs.app.follow import listing, local, log_reader
from tierfs.base.words.errors import NotFound, TierfsError
from tierfs.base.words.types import ByteRange
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.metadata import followed
from tierfs.engine.segments.writer import PlannedAppend

A_DAY_S = 24 * 3600


@pytest.fixture
def following(tmp_path: Path) -> Iterator[Following]:
    made = Following(tmp_path)
    yield made
    made.restart()


def write(path: Path, text: str) -> None:
    """Append to a file."""
    with path.open("a") as file:
        file.write(text)


def test_a_first_run_reads_what_is_there_but_no_rotated_files(following: Following) -> None:
    write(following.logs / "app.log.1", "old\n")
    write(following.logs / "app.log", "one\ntwo\n")
    write(following.logs / "other.1", "three\n")
    (following.logs / "sub").mkdir()
    write(following.logs / "sub" / "app.log", "four\n")
    following.look()
    assert [following.text(name) for name in following.segments()] == ["one\ntwo\n", "three\n", "four\n"]
    assert following.segments() == ["app.log", "other.1", "sub/app.log"]
    assert following.told.warnings == []


def test_lines_are_appended_whole_and_a_last_one_after_a_while(following: Following) -> None:
    log = following.logs / "app.log"
    write(log, "one\ntw")
    following.look(after_s=0.5)
    assert following.text() == "one\n"
    write(log, "o\nthr")
    following.look(after_s=1)
    assert following.text() == "one\ntwo\n"
    following.look(2, after_s=log_reader.PARTIAL_S / 2 - 0.1)
    assert following.text() == "one\ntwo\n"
    following.look(after_s=1)
    assert following.text() == "one\ntwo\nthr"
    write(log, "ee\n")
    following.look()
    assert following.text() == "one\ntwo\nthree\n"


def test_a_line_that_never_ended_does_not_run_into_the_next_file(following: Following) -> None:
    log = following.logs / "app.log"
    write(log, "one\ntwo")
    following.look()
    log.rename(following.logs / "app.log.1")
    write(log, "three\n")
    following.look(2)
    assert following.text() == "one\ntwo\nthree\n"


def test_a_line_longer_than_an_append_is_whole(following: Following) -> None:
    long = "x" * 3_000_000
    write(following.logs / "app.log", f"one\n{long}\ntwo\n")
    following.look()
    assert following.text() == f"one\n{long}\ntwo\n"


def test_late_lines_of_a_rotated_file_are_appended(following: Following) -> None:
    log, rotated = following.logs / "app.log", following.logs / "app.log.1"
    write(log, "one\n")
    following.look()
    log.rename(rotated)
    write(log, "three\n")
    following.look()
    write(rotated, "two, late\n")
    write(log, "four\n")
    following.look()
    assert following.text() == "one\nthree\ntwo, late\nfour\n"
    following.restart()
    write(log, "five\n")
    following.look(2)
    assert following.text() == "one\nthree\ntwo, late\nfour\nfive\n"


@pytest.mark.parametrize("restarted", [False, True])
def test_a_truncated_log_without_a_copy_is_a_gap(following: Following, restarted: bool) -> None:
    log = following.logs / "app.log"
    write(log, "one\ntwo\n")
    following.look()
    if restarted:
        following.restart()
    log.write_text("three\n")
    following.look(after_s=0.5)
    assert following.text() == "one\ntwo\n", "a copy may still be found"
    following.look(2)
    assert following.text() == "one\ntwo\nthree\n"
    gap = following.told.warnings.pop()
    assert (gap.startswith(f"{log}: lines may be missing before offset 8: after byte 8"), following.told.warnings) == (
        True,
        [],
    )
    following.restart()
    following.look(3)
    assert following.told.warnings == []
    with following.store.metadata.read() as txn:
        assert [(name, row.segment_start) for name, row in followed.gaps(txn)] == [("in/app.log", 8)]


def test_another_file_with_the_inode_of_a_deleted_one_is_another_file(following: Following) -> None:
    """The same inode, and more bytes than were read: only the bytes tell."""
    log = following.logs / "app.log"
    write(log, "one\n")
    following.look()
    following.restart()
    log.write_text("another one\ntwo\n")
    following.look(3)
    assert following.text() == "one\nanother one\ntwo\n"
    assert len(following.told.warnings) == 1


def test_a_compressed_file_that_cannot_be_read_is_a_gap(following: Following) -> None:
    log = following.logs / "app.log"
    write(log, "one\n")
    following.look()
    following.restart()
    whole = gzip.compress(b"one\ntwo\n" + os.urandom(100_000))
    log.rename(following.logs / "app.log.1")
    (following.logs / "app.log.1.gz").write_bytes(whole[: len(whole) // 2])
    (following.logs / "app.log.1").unlink()
    write(log, "three\n")
    following.look(after_s=1)
    assert following.text() == "one\n", "it may still be compressed"
    following.look(9, after_s=1)
    assert following.text() == "one\nthree\n"
    assert "was not found, or cannot be read" in following.told.warnings[0]


def test_a_link_is_followed_to_each_of_its_files(following: Following) -> None:
    first, second, third = (following.logs / f"app-2026010{number}.log" for number in (1, 2, 3))
    link = following.logs / "app.log"
    write(first, "one\n")
    link.symlink_to(first)
    made = Following(following.path, "app.log")
    made.look()
    write(first, "two\n")
    write(second, "three\n")
    write(third, "four\n")
    link.unlink()
    link.symlink_to(third)
    made.restart()
    made.look(2)
    assert made.text() == "one\ntwo\nthree\nfour\n"
    assert made.told.warnings == []
    made.restart()


def test_a_link_to_a_log_that_is_followed_is_left_out(following: Following) -> None:
    write(following.logs / "app.log", "one\n")
    (following.logs / "a-link").symlink_to(following.logs / "app.log")
    (following.logs / "to nothing").symlink_to(following.logs / "missing")
    os.mkfifo(following.logs / "pipe")
    following.look()
    assert following.segments() == ["app.log"]


def test_files_that_appear_are_followed_and_those_that_vanish_are_read_to_their_end(following: Following) -> None:
    write(following.logs / "app.log", "one\n")
    following.look()
    new = following.logs / "sub" / "new.log"
    new.parent.mkdir()
    write(new, "one\n")
    new.rename(following.logs / "sub" / "new.log.1")
    write(new, "two\n")
    following.look()
    assert following.text("sub/new.log") == "one\ntwo\n", "its rotated file appeared later than the first run, too"
    write(new, "three\n")
    new.unlink()
    following.look()
    assert following.text("sub/new.log") == "one\ntwo\nthree\n"
    write(new, "four\n")
    following.look(3)
    assert following.text("sub/new.log") == "one\ntwo\nthree\nfour\n"
    assert following.told.warnings == []


def test_a_file_that_is_rotated_before_the_first_commit_is_read(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = following.logs / "app.log"
    write(log, "one\n")
    assert following.follower.paths == [str(log)]
    following.restart()
    log.rename(following.logs / "app.log.1")
    write(log, "two\n")
    following.look(2)
    assert following.text() == "one\ntwo\n"


def test_a_log_that_has_no_file_now_is_read_to_its_end(following: Following) -> None:
    """logrotate's `nocreate`: the new file is made with the next line."""
    log = following.logs / "app.log"
    write(log, "one\n")
    following.look()
    following.restart()
    write(log, "two\n")
    log.rename(following.logs / "app.log.1")
    following.look()
    assert following.text() == "one\ntwo\n"
    assert following.segments() == ["app.log"]


def test_a_removed_segment_gets_its_file_from_the_start(following: Following) -> None:
    log = following.logs / "app.log"
    write(log, "one\n")
    following.look()
    following.restart()
    following.store.engine.delete("in/app.log", recursive=False, cold_due_ms=0)
    write(log, "two\n")
    following.look()
    assert following.text() == "one\ntwo\n"


def test_lines_continue_after_bytes_that_others_appended(following: Following) -> None:
    log = following.logs / "app.log"
    write(log, "one\n")
    following.look()
    following.restart()
    writer = following.store.engine.open_writer("in/app.log")
    writer.append(b"by hand\n")
    write(log, "two\n")
    following.look()
    assert len(following.told.warnings) == 1, "the writer is another one's"
    following.store.engine.close_writer(writer)
    following.look(2)
    assert following.text() == "one\nby hand\ntwo\n"
    assert len(following.told.warnings) == 1


def test_an_error_of_one_log_does_not_stop_the_others(following: Following) -> None:
    write(following.logs / "app.log", "one\n")
    write(following.logs / "bad\x01name", "never\n")
    write(following.logs / "sealed", "one\n")
    following.look()
    following.restart()
    following.store.engine.seal("in/sealed")
    for name in ("sealed", "app.log"):
        write(following.logs / name, "two\n")
    following.told.warnings.clear()
    following.look(3)
    assert following.text() == "one\ntwo\n"
    refused, sealed = following.told.warnings
    assert ("cannot be part of a segment's name" in refused, "it is sealed" in sealed) == (True, True)


def test_a_name_that_is_not_utf8_is_told_as_it_would_be_in_the_store(following: Following) -> None:
    write(following.logs / "app.log", "one\n")
    write(following.logs / os.fsdecode(b"bad\xff"), "never\n")
    following.look()
    (told,) = following.told.warnings
    assert "is not followed: in/bad" in told, "with one slash between its parts"


def test_a_full_disk_is_waited_for(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    write(following.logs / "app.log", "one\n")
    following.look()
    write(following.logs / "app.log", "two\n")
    answers = iter([0, 0, 0])
    free_bytes = ChunkFiles.free_bytes
    monkeypatch.setattr(room, "_POLL_S", 0)
    monkeypatch.setattr(ChunkFiles, "free_bytes", lambda files: next(answers, free_bytes(files)))
    following.look()
    assert following.text() == "one\ntwo\n"
    assert [("the local disk is full" in text) for text in following.told.warnings] == [True]


def test_a_directory_is_listed_twice_for_all_logs_in_it(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many logs are rotated at once: a listing for each of them would take more time the more of them there are."""
    logs = [following.logs / f"{number}.log" for number in range(30)]
    for log in logs:
        write(log, "one\n")
    following.look()
    for log in logs:
        log.rename(f"{log}.1")
        write(log, "two\n")
    listed: list[object] = []
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(path) or listdir(path))
    following.look()
    assert listed == [str(following.logs)] * 2
    assert [following.text(log.name) for log in logs] == ["one\ntwo\n"] * len(logs)


def test_the_log_that_has_waited_longest_comes_first(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed early, again and again, reaches every log."""
    first, second = following.logs / "1.log", following.logs / "2.log"
    write(second, "one\n")
    following.look()
    write(first, "one\n")
    following.look()
    order: list[str] = []
    append_all = local.append_all

    def note(appends: Sequence[PlannedAppend]) -> list[ByteRange | TierfsError]:
        order.extend(each.followed.path.decode() for each in appends if each.followed is not None)
        return append_all(appends)

    monkeypatch.setattr(local, "append_all", note)
    for log in (first, second):
        write(log, "two\n")
    following.look()
    assert order == [str(second), str(first)]


def test_nothing_to_follow_is_an_error(tmp_path: Path) -> None:
    made = Following(tmp_path, "none", "*.log")
    with pytest.raises(NotFound, match=r"nothing to follow matches .*none .*log"):
        made.look()
    write(made.logs / "app.log", "one\n")
    made.look()
    made.restart()
    (made.logs / "app.log").unlink()
    made.look()
    assert made.told.warnings == []
    made.restart()


def test_a_pattern_and_a_path_name_segments_from_their_fixed_part(tmp_path: Path) -> None:
    made = Following(tmp_path, "*/app.log", "single.1", "dir")
    for name in ("a/app.log", "b/app.log", "b/app.log.1", "b/other", "single", "single.1", "dir/sub/x"):
        (made.logs / name).parent.mkdir(parents=True, exist_ok=True)
        write(made.logs / name, f"{name}\n")
    made.look()
    assert made.segments() == ["a/app.log", "b/app.log", "dir/sub/x", "single.1"]
    made.restart()


def test_states_tell_how_far_a_segment_lags(following: Following) -> None:
    log = following.logs / "app.log"
    write(log, "one\n")
    following.look()
    (state,) = listing.states(following.store, "in")
    assert (state.segment, state.offset, state.lag_bytes, state.lag_s, state.state) == (
        "in/app.log",
        4,
        0,
        0,
        "followed",
    )
    write(log, "two\n")
    following.clock.advance(7)
    (state,) = listing.states(following.store)
    assert (state.lag_bytes, state.lag_s) == (4, 7)
    log.rename(following.logs / "app.log.1")
    assert [each.state for each in listing.states(following.store)] == ["gone"]
    write(log, "x")
    assert [each.state for each in listing.states(following.store)] == ["rotated"]
    assert list(listing.states(following.store, "other")) == []


def test_logs_that_vanished_long_ago_are_forgotten(following: Following) -> None:
    for name in ("app.log", "gone.log"):
        write(following.logs / name, "one\n")
    following.look()
    (following.logs / "gone.log").unlink()
    following.clock.advance(A_DAY_S)
    write(following.logs / "app.log", "two\n")
    following.look()
    write(following.logs / "new.log", "one\n")
    following.look()
    assert sorted(map(os.path.basename, following.follower.paths)) == ["app.log", "new.log"]
    following.restart()
    assert sorted(map(os.path.basename, following.follower.paths)) == ["app.log", "new.log"]
