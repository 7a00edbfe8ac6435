"""A path names the segment that a reader finds there, or is refused: in bind mounts and below other filesystems."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.mount.conftest import append, opened_store, serving
from tests.mount.waiting import eventually
from tierfs.app import store as app
from tierfs.app.setup import typed
from tierfs.base.system import mounts, places
from tierfs.base.system.mounts import MountState
from tierfs.base.words.errors import InvalidRequest, Unavailable

pytestmark = [pytest.mark.mount, pytest.mark.xdist_group(__name__)]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a directory needs root")

SEGMENTS = ("n1", "web/n1", "web/deep/n1", "a[1]/x1", "a1/x1", "an/x1", "s p#/é", "over/n1", "removed (deleted)/n1")
AT_ROOT = os.geteuid() == 0


@contextmanager
def bound(*words: object) -> Iterator[None]:
    """Keep what mount(8) mounts at its last word."""
    subprocess.run(["mount", *map(str, words)], check=True, timeout=30)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(words[-1])], check=True, timeout=30)


class Places:
    """Directories through which a store and another one are seen."""

    def __init__(self, root: Path, store: app.Store, other: app.Store) -> None:
        self.root, self.store, self.other = root, store, other
        self.mnt, self.theirs = root / "mnt", root / "theirs"

    def text(self, pattern: str) -> str:
        return pattern.format(root=self.root)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    root = tmp_path_factory.mktemp("seen").resolve()
    with ExitStack() as kept:
        store = kept.enter_context(opened_store(root / "store"))
        other = kept.enter_context(opened_store(root / "other"))
        for name in SEGMENTS:
            append(store, name, name.encode())
        append(other, "web/n1", b"of the other store")
        at = Places(root, store, other)
        for path, opened in ((at.mnt, store), (at.theirs, other)):
            path.mkdir()
            kept.enter_context(serving(opened.path, path))
        (root / "link").symlink_to("mnt/web")
        (root / "chain").symlink_to("link/../n1")
        (root / "loop").symlink_to("loop")
        (root / "new").symlink_to("mnt/web/not there yet")
        (root / "real/deep").mkdir(parents=True)
        if AT_ROOT:
            for name in ("web", "whole", "space", "twice", "brackets"):
                (root / name).mkdir()
            (root / "file").touch()
            kept.enter_context(bound("--bind", at.mnt / "web", root / "web"))
            kept.enter_context(bound("--bind", at.mnt, root / "whole"))
            kept.enter_context(bound("--bind", at.mnt / "s p#", root / "space"))
            kept.enter_context(bound("--bind", root / "web/deep", root / "twice"))
            kept.enter_context(bound("--bind", at.mnt / "a[1]", root / "brackets"))
            kept.enter_context(bound("--bind", at.mnt / "web/n1", root / "file"))
            kept.enter_context(bound("-t", "tmpfs", "none", at.mnt / "over"))
            (at.mnt / "over/n1").write_text("of the tmpfs")
        yield at


EVERYWHERE = [
    ("", "{root}/mnt/n1", "n1"),
    ("", "{root}/mnt", ""),
    ("", "{root}//mnt/./web//n1", "web/n1"),
    ("", "{root}/mnt/web/../n1", "n1"),
    ("", "{root}/link/n1", "web/n1"),
    ("", "{root}/link/../n1", "n1"),
    ("", "{root}/chain", "n1"),
    ("", "{root}/new", "web/not there yet"),
    ("", "{root}/mnt/not/there/yet", "not/there/yet"),
    ("", "{root}/mnt/../n1", "{root}/mnt/../n1"),
    ("", "{root}/real/../mnt/n1", "n1"),
    ("", "{root}/not there/../mnt/n1", "!does not lead into it"),
    ("", "{root}/loop/n1", "{root}/loop/n1"),
    ("", "{root}/real/n1", "{root}/real/n1"),
    ("", "{root}/theirs/web/n1", "!is in a mount of the store"),
    ("", "./mnt/web/n1", "web/n1"),
    ("", "mnt/web/n1", "web/n1"),
    ("", "web/n1", "web/n1"),
    ("", "n1", "n1"),
    ("real/deep", "../../mnt/n1", "n1"),
    ("mnt", "n1", "n1"),
    ("mnt/web", "n1", "web/n1"),
    ("mnt/web", "./n1", "web/n1"),
    ("mnt/web", "../n1", "n1"),
    ("mnt/web", "deep/../n1", "web/n1"),
    ("mnt/web", "../../link/n1", "web/n1"),
    ("mnt/web", "../../n1", "../../n1"),
    ("mnt/web/deep", "../../../mnt/n1", "n1"),
    ("mnt/web", "", ""),
    ("mnt/removed (deleted)", "n1", "removed (deleted)/n1"),
    ("theirs/web", "n1", "n1"),
    ("theirs/web", "./n1", "!is in a mount of the store"),
]
BOUND = [
    ("", "{root}/web/n1", "web/n1"),
    ("", "{root}/web", "web"),
    ("", "{root}/web/deep/n1", "web/deep/n1"),
    ("", "{root}/web/new", "web/new"),
    ("", "{root}/web/../mnt/n1", "n1"),
    ("", "{root}/whole/n1", "n1"),
    ("", "{root}/twice/n1", "web/deep/n1"),
    ("", "{root}/space/é", "s p#/é"),
    ("", "{root}/file", "web/n1"),
    ("", "{root}/mnt/over/n1", "!is in another filesystem"),
    ("", "{root}/mnt/over", "!is in another filesystem"),
    ("", "{root}/mnt/over/../n1", "!is in another filesystem"),
    ("", "{root}/whole/over/n1", "over/n1"),
    ("web", "n1", "web/n1"),
    ("web", "../file", "web/n1"),
    ("web/deep", "../n1", "web/n1"),
    ("twice", "n1", "web/deep/n1"),
    ("whole/web", "../n1", "n1"),
    ("mnt/over", "./n1", "!does not lead into it"),
]


@pytest.mark.parametrize(("working", "text", "name"), EVERYWHERE)
def test_a_path_names_what_a_reader_finds_there(
    seen: Places, monkeypatch: pytest.MonkeyPatch, working: str, text: str, name: str
) -> None:
    monkeypatch.chdir(seen.root / working)
    if name.startswith("!"):  # what the refusal says
        with pytest.raises(InvalidRequest, match=name[1:]):
            seen.store.segment_of_path(seen.text(text))
        return
    found = seen.store.segment_of_path(seen.text(text))
    assert found == seen.text(name)
    if (file := Path(seen.text(text))).is_file() and not working.startswith("theirs"):
        assert file.read_text() == found


@needs_root
@pytest.mark.parametrize(("working", "text", "name"), BOUND)
def test_a_path_through_a_bind_mount_names_what_a_reader_finds_there(
    seen: Places, monkeypatch: pytest.MonkeyPatch, working: str, text: str, name: str
) -> None:
    test_a_path_names_what_a_reader_finds_there(seen, monkeypatch, working, text, name)


@needs_root
def test_a_directory_with_brackets_that_was_not_typed_is_no_pattern(
    seen: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(seen.mnt / "a[1]")
    assert seen.store.names_of("x*") == ["a[1]/x1"]
    assert seen.store.names_of(str(seen.root / "brackets/x*")) == ["a[1]/x1"]
    monkeypatch.chdir(seen.root)
    assert seen.store.names_of("a?/x*") == ["a1/x1", "an/x1"]


@needs_root
def test_a_mount_that_another_covers_counts_only_where_a_working_directory_is_in_it(
    seen: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(seen.mnt / "web")
    with bound("-t", "tmpfs", "none", seen.mnt):
        assert seen.store.segment_of_path("./n1") == "web/n1"  # this directory is still of the mount
        (seen.mnt / "web").mkdir()
        for path in ("web/n1", "web", ""):
            with pytest.raises(InvalidRequest, match="another filesystem covers it"):
                seen.store.segment_of_path(str(seen.mnt / path))
        states = [mounts.state_of(mount) for mount in places.mounts() if mount.mountpoint == seen.mnt]
        assert states == [MountState.COVERED]
        refused = tierfs("umount", seen.mnt, check=False)
        assert (refused.code, "is not a tierfs mount" in refused.err) == (3, True)


@needs_root
def test_a_directory_that_was_taken_away_or_removed_names_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mnt").mkdir()
    (tmp_path / "bound").mkdir()
    with opened_store(tmp_path / "store") as store:
        append(store, "n1", b"of the root")
        append(store, "web/n1", b"of web")
        with serving(store.path, tmp_path / "mnt"):
            with bound("--bind", tmp_path / "mnt/web", tmp_path / "bound"):
                assert store.segment_of_path(str(tmp_path / "bound/n1")) == "web/n1"
                store.engine.delete("web", recursive=True, cold_due_ms=0)
                append(store, "web/n1", b"of another web")
                with pytest.raises(InvalidRequest):  # the kernel may not be notified yet
                    store.segment_of_path(str(tmp_path / "bound/n1"))
                assert eventually((tmp_path / "mnt/web/n1").exists)
                with pytest.raises(InvalidRequest, match="has since been removed or replaced"):
                    store.segment_of_path(str(tmp_path / "bound/n1"))
            monkeypatch.chdir(tmp_path / "mnt/web")
            store.engine.delete("web", recursive=True, cold_due_ms=0)
            assert eventually(lambda: not (tmp_path / "mnt/web").exists())
            with pytest.raises(InvalidRequest, match=r"working directory|was removed"):
                store.segment_of_path("./n1")
            append(store, "web/n1", b"of a third")
            assert eventually((tmp_path / "mnt/web/n1").exists)
            monkeypatch.chdir(tmp_path / "mnt/web")
            subprocess.run(["umount", "-l", str(tmp_path / "mnt")], check=True, timeout=30)
            with pytest.raises(InvalidRequest, match="in a removed mount"):
                store.segment_of_path("n1")
            monkeypatch.chdir("/")


@needs_root
def test_a_bind_mount_shows_what_has_its_name_in_the_store(tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    (tmp_path / "bound").mkdir()
    with opened_store(tmp_path / "store") as store:
        append(store, "web/n1", b"of web")
        with (
            serving(store.path, tmp_path / "mnt") as mounted,
            bound("--bind", tmp_path / "mnt/web", tmp_path / "bound"),
        ):
            mounted.process.send_signal(signal.SIGSTOP)  # so that the kernel is not notified
            try:
                store.engine.delete("web", recursive=True, cold_due_ms=0)
                append(store, "web/n1", b"of another web")
                with pytest.raises(InvalidRequest, match="may show a web other"):
                    store.segment_of_path(str(tmp_path / "bound/n1"))
            finally:
                mounted.process.send_signal(signal.SIGCONT)


@needs_root
def test_of_two_directories_of_one_path_the_mounts_own_store_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container the store's path may lead to another store."""
    (tmp_path / "mnt").mkdir()
    (tmp_path / "elsewhere").mkdir()
    for name in ("store", "stranger"):
        with opened_store(tmp_path / name) as store:
            append(store, "n1", f"of the {name}".encode())
    with serving(tmp_path / "store", tmp_path / "mnt"):
        with bound("--bind", tmp_path / "store", tmp_path / "elsewhere"):
            done = tierfs("--store", tmp_path / "elsewhere", "cat", tmp_path / "mnt/n1")
            assert done.out == "of the store"
        with bound("--bind", tmp_path / "stranger", tmp_path / "store"):
            for directory, text in (("/", str(tmp_path / "mnt/n1")), (tmp_path / "mnt", "n1")):
                monkeypatch.chdir(directory)
                refused = tierfs("rm", "--now", "--yes", text, check=False)
                assert (refused.code, "cannot be identified as a mount of the store" in refused.err) == (2, True), (
                    refused
                )
            monkeypatch.chdir("/")
    assert tierfs("cat", "n1", store=tmp_path / "stranger").out == "of the stranger"


def test_a_mount_that_does_not_answer_is_not_asked(tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    with opened_store(tmp_path / "store") as store:
        append(store, "web/n1", b"bytes")
        with serving(store.path, tmp_path / "mnt") as mounted:
            for number in (signal.SIGSTOP, signal.SIGKILL):
                mounted.process.send_signal(number)
                assert store.segment_of_path(str(tmp_path / "mnt/web/n1")) == "web/n1"
                assert places.mount_at(tmp_path / "mnt") is not None
            mounted.process.wait(30)
            assert store.segment_of_path(str(tmp_path / "mnt/web/n1")) == "web/n1"


def test_a_mount_without_a_lock_counts_where_it_reports_this_store(
    seen: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a store that cannot be written."""
    place = places.place_of(str(seen.mnt / "n1"))
    assert place is not None
    lock = seen.store.paths.mount(place.mount.device)
    lock.rename(lock.with_suffix(".away"))
    try:
        assert typed.is_mount_of(seen.store.path, seen.store.metadata, place.mount)
        monkeypatch.setattr(typed, "_reported_store", lambda mount: seen.other.metadata.store_id)
        with pytest.raises(InvalidRequest):
            typed.is_mount_of(seen.store.path, seen.store.metadata, place.mount)
    finally:
        lock.with_suffix(".away").rename(lock)


def test_without_a_table_of_mounts_no_path_is_taken_for_a_name(
    seen: Places, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(places, "_MOUNT_TABLE", tmp_path / "no proc")
    with pytest.raises(Unavailable, match="could refer to any segment"):
        seen.store.segment_of_path(str(seen.mnt / "n1"))
