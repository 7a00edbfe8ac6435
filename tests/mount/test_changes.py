"""Changes of other processes show within a second, and growth never shows a wrong byte."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import verbs
from tests.mount.conftest import Mount, append
from tests.mount.waiting import eventually
from tests.reality.reference import reference
from tierfs.app import verbs as app_verbs
from tierfs.app.store import Store
from tierfs.engine.metadata import policies
from tierfs.engine.segments.create import create

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread"), pytest.mark.xdist_group(__name__)]


@pytest.fixture(scope="module")
def store(common_store: Store) -> Store:
    return common_store


@pytest.fixture(scope="module")
def mount(common_mount: Mount) -> Mount:
    return common_mount


VISIBLE_S = 1.0
SLACK_S = 5.0
"""For a machine that is busy with other tests."""


def test_new_segments_appends_seals_and_deletions_show(store: Store, mount: Mount) -> None:
    mnt = mount("xattr").path
    assert not (mnt / "new/s").exists()
    append(store, "new/s", b"one")
    assert eventually((mnt / "new/s").exists, VISIBLE_S + SLACK_S)
    assert os.listdir(mnt / "new") == ["s"]
    assert (mnt / "new/s").read_bytes() == b"one"
    append(store, "new/s", b"two")
    assert (mnt / "new/s").read_bytes() == b"onetwo"
    assert (mnt / "new/s").stat().st_size == 6
    append(store, "new/s", b"three")
    assert eventually(lambda: (mnt / "new/s").stat().st_size == 11, VISIBLE_S + SLACK_S)
    store.engine.seal("new/s")
    assert eventually(lambda: os.getxattr(mnt / "new/s", "user.tierfs.sealed") == b"1", VISIBLE_S + SLACK_S)
    assert (mnt / "new/s").read_bytes() == b"onetwothree"
    append(store, "new/other", b"x")
    assert eventually(lambda: sorted(os.listdir(mnt / "new")) == ["other", "s"], VISIBLE_S + SLACK_S)
    verbs.delete(store, "new/s", recursive=False)
    assert eventually(lambda: not (mnt / "new/s").exists(), VISIBLE_S + SLACK_S)
    assert os.listdir(mnt / "new") == ["other"]


@contextmanager
def watched(*paths: Path) -> Iterator[Callable[[], bytes]]:
    """Watch paths with inotify(7) for changes; yields what returns the events that have come."""
    libc = ctypes.CDLL(None, use_errno=True)
    modify, attributes, closed, moved, created, deleted, own = 0x2, 0x4, 0x8, 0xC0, 0x100, 0x200, 0x400
    with open(libc.inotify_init1(os.O_NONBLOCK), "rb", buffering=0) as events:
        for path in paths:
            mask = modify | attributes | closed | moved | created | deleted | own
            assert libc.inotify_add_watch(events.fileno(), os.fsencode(path), mask) >= 0, os.strerror(
                ctypes.get_errno()
            )
        yield lambda: events.read(1 << 16) or b""


def test_inotify_reports_no_change_but_programs_that_look_again_see_it(
    store: Store, mount: Mount, tmp_path: Path
) -> None:
    append(store, "watched/s", b"one")
    append(store, "watched/old", b"old")
    seen = mount("xattr").path / "watched"
    assert sorted(os.listdir(seen)) == ["old", "s"]
    with watched(seen, seen / "s", seen / "old") as events:
        append(store, "watched/s", b"two")
        append(store, "watched/new", b"new")
        verbs.delete(store, "watched/old", recursive=False)
        assert eventually(lambda: sorted(os.listdir(seen)) == ["new", "s"], VISIBLE_S + SLACK_S)
        assert eventually(lambda: (seen / "s").read_bytes() == b"onetwo", VISIBLE_S + SLACK_S)
        assert eventually(lambda: not (seen / "old").exists(), VISIBLE_S + SLACK_S)
        assert events() == b""
    with watched(tmp_path) as events:
        (tmp_path / "here").touch()
        assert events() != b"", "an event is noticed"


def test_a_removal_and_its_way_back_show_and_an_open_file_is_read_on(store: Store, mount: Mount) -> None:
    append(store, "gone/e/s", b"content")
    mnt = mount("xattr").path
    assert (mnt / "gone/e/s").read_bytes() == b"content"
    with open(mnt / "gone/e/s", "rb") as opened:
        app_verbs.delete(store, "gone", recursive=True)
        assert eventually(lambda: not (mnt / "gone").exists(), VISIBLE_S + SLACK_S)
        assert eventually(lambda: not (mnt / "gone/e/s").exists(), VISIBLE_S + SLACK_S)
        assert opened.read() == b"content"
        append(store, "gone/e/s", b"new")
        assert eventually((mnt / "gone/e/s").exists, VISIBLE_S + SLACK_S)
        assert (mnt / "gone/e/s").read_bytes() == b"new"
    assert app_verbs.restore(store, "gone", to="back")[0] == "back"
    assert eventually((mnt / "back/e/s").exists, VISIBLE_S + SLACK_S)
    assert (mnt / "back/e/s").read_bytes() == b"content"
    assert {"back", "gone"} <= set(os.listdir(mnt))


def test_a_stream_shows_as_sealed_files_and_one_that_grows(store: Store, mount: Mount) -> None:
    append(store, "stream/s", b"")
    with store.metadata.write() as txn:
        policies.change(txn, "stream", put_settings={"seal_bytes": "10"})
    mnt = mount("xattr").path
    with open(mnt / "stream/s", "rb") as opened:
        writer = store.engine.open_writer("stream/s")
        for _ in range(4):
            writer.append(b"abcdefg")
        assert eventually(lambda: sorted(os.listdir(mnt / "stream")) == ["s", "s.14"], VISIBLE_S + SLACK_S)
        assert eventually(lambda: os.getxattr(mnt / "stream/s", "user.tierfs.sealed") == b"1", VISIBLE_S + SLACK_S)
        assert eventually(lambda: os.pread(opened.fileno(), 100, 0) == b"abcdefg" * 2, VISIBLE_S + SLACK_S)
    assert (mnt / "stream/s").read_bytes() == b"abcdefg" * 2
    assert (mnt / "stream/s.14").stat().st_size == 14
    assert (mnt / "stream/s.14").read_bytes() == b"abcdefg" * 2
    assert os.getxattr(mnt / "stream/s.14", "user.tierfs.start_offset") == b"14"
    assert os.getxattr(mnt / "stream/s.14", "user.tierfs.sealed") == b"0"
    store.engine.close_writer(writer)


def test_a_listing_shows_each_name_once_while_names_come_and_go(store: Store, mount: Mount) -> None:
    stay = [f"m{number:04d}-stays" for number in range(300)]
    with store.metadata.write() as txn:
        for name in stay:
            create(txn, f"each/{name}")
    directory = mount("xattr").path / "each"
    chosen = random.Random(7)
    with os.scandir(directory) as listing:
        seen = []
        for number, entry in enumerate(listing):
            seen.append(entry.name)
            if number % 10 == 0:
                with store.metadata.write() as txn:
                    create(txn, f"each/{chosen.choice('azm')}{chosen.randrange(10_000):04d}-{number}-comes")
    assert len(seen) == len(set(seen))
    assert [name for name in seen if name.endswith("stays")] == stay


def test_an_open_file_reads_on_while_its_bytes_move(store: Store, mount: Mount) -> None:
    data = reference(0, 5_000_000)
    append(store, "moves", data, seal=True)
    mnt = mount("direct_io").path
    with (mnt / "moves").open("rb", buffering=0) as file:
        assert os.pread(file.fileno(), 100_000, 0) == data[:100_000]
        verbs.offload(store, "moves")
        verbs.evict(store, "moves")
        for offset in range(0, len(data), 700_001):
            assert os.pread(file.fileno(), 700_001, offset) == data[offset : offset + 700_001]


def test_tail_shows_a_new_line(store: Store, mount: Mount) -> None:
    append(store, "live", b"first\n")
    mnt = mount("xattr").path
    tail = subprocess.Popen(["tail", "-n", "+1", "-s", "0.1", "-f", mnt / "live"], stdout=subprocess.PIPE, text=True)
    assert tail.stdout is not None
    try:
        assert tail.stdout.readline() == "first\n"
        for number in range(3):
            append(store, "live", b"line %d\n" % number)
            assert tail.stdout.readline() == f"line {number}\n"
    finally:
        tail.kill()
        tail.communicate()


def test_listings_are_complete_while_names_come(store: Store, mount: Mount) -> None:
    with store.metadata.write() as txn:
        for number in range(5000):
            create(txn, f"many/s{number:05d}")
    mnt = mount("xattr").path
    stop = threading.Event()

    def more() -> None:
        number = 0
        while not stop.is_set():
            append(store, f"many/t{number:05d}", b"")
            number += 1

    writer = threading.Thread(target=more)
    writer.start()
    try:
        for _ in range(5):
            names = os.listdir(mnt / "many")
            assert len(names) == len(set(names))
            assert {f"s{number:05d}" for number in range(5000)} <= set(names)
    finally:
        stop.set()
        writer.join()


def _follow(path: Path, until: float, answers) -> None:  # type: ignore[no-untyped-def]
    """Reads the growing end."""
    position = wrong = 0
    with path.open("rb", buffering=0) as file:
        while time.monotonic() < until:
            data = file.read(random.choice([100, 4096, 65_536, 131_072]))
            wrong += data != reference(position, position + len(data))
            position += len(data)
    answers.put(("follow", wrong, position))


def _reread(path: Path, until: float, answers) -> None:  # type: ignore[no-untyped-def]
    """Reads all of it, again and again."""
    wrong = total = 0
    while time.monotonic() < until:
        data = path.read_bytes()
        wrong += data != reference(0, len(data))
        total += len(data)
    answers.put(("reread", wrong, total))


def _read_ends(path: Path, until: float, answers) -> None:  # type: ignore[no-untyped-def]
    """Reads across the end that stat shows."""
    wrong = reads = 0
    with path.open("rb", buffering=0) as file:
        while time.monotonic() < until:
            size = os.fstat(file.fileno()).st_size
            offset = max(0, size - random.randint(0, 9000))
            data = os.pread(file.fileno(), 20_000, offset)
            wrong += data != reference(offset, offset + len(data)) or len(data) < min(20_000, size - offset)
            reads += 1
    answers.put(("ends", wrong, reads))


def _stat(path: Path, until: float, answers) -> None:  # type: ignore[no-untyped-def]
    """Check that sizes never shrink."""
    wrong = looks = last = 0
    while time.monotonic() < until:
        size = path.stat().st_size
        wrong += size < last
        last = max(last, size)
        looks += 1
    answers.put(("stat", wrong, looks))


def _dd(path: Path, until: float, answers) -> None:  # type: ignore[no-untyped-def]
    """A tool of its own process each time, once at least."""
    wrong = total = 0
    while not total or time.monotonic() < until:
        data = subprocess.run(["dd", f"if={path}", "bs=3k", "status=none"], capture_output=True, check=True).stdout
        wrong += data != reference(0, len(data))
        total += len(data)
    answers.put(("dd", wrong, total))


def test_growth_never_shows_a_wrong_byte(store: Store, mount: Mount) -> None:
    append(store, "grow", reference(0, 1000))
    path = mount("xattr").path / "grow"
    answers: multiprocessing.Queue[tuple[str, int, int]] = multiprocessing.Queue()
    until = time.monotonic() + 1.5
    readers = [_follow, _reread, _read_ends, _stat, _dd]
    processes = [multiprocessing.Process(target=reader, args=(path, until, answers)) for reader in readers]
    for process in processes:
        process.start()
    writer = store.engine.open_writer("grow")
    chosen = random.Random(2)
    while time.monotonic() < until - 0.3 and writer.length < 30_000_000:
        start = writer.length
        writer.append(reference(start, start + chosen.choice([1, 7, 100, 1000, 3000, 4095, 5000, 9999, 40_000])))
    store.engine.close_writer(writer)
    results = [answers.get(timeout=30) for _ in readers]
    for process in processes:
        process.join(30)
    assert all(wrong == 0 for _, wrong, _ in results), results
    assert all(done > 0 for _, _, done in results), results
    assert path.read_bytes() == reference(0, writer.length)
