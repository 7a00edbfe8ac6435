"""The access log: its queues on a clock of the tests, and the file through the kernel."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pyfuse3
import pytest
import trio
from trio.testing import MockClock

from tests import verbs
from tests.commands import tierfs
from tests.doubles.manual_clock import ManualClock
from tests.mount.conftest import Mount, append
from tests.mount.waiting import eventually
from tierfs.app import store
from tierfs.base.system.metrics import Count, NullMetrics
from tierfs.mount.access_log import IDLE_S, MAX_LINES, AccessLog, Listener
from tierfs.mount.errors import operation
from tierfs.mount.subjects import Subject

mounts_for_real = pytest.mark.mount
pytestmark = [pytest.mark.timeout(120, method="thread")]

SIZE = 1 << 17
SOON_S = 10.0
"""Longest wait, on a busy machine, for an event that is due within a second or two."""


def numbered(listener: Listener, first: int, count: int) -> None:
    for number in range(first, first + count):
        listener.put(b"%d\n" % number)


async def test_a_line_wakes_the_reader_at_once(autojump_clock: MockClock) -> None:
    listener = AccessLog(ManualClock()).open()
    got: list[bytes] = []

    async def read() -> None:
        got.append(await listener.read(0, SIZE))
        got.append(b"%.1f" % trio.current_time())

    begun_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.sleep(IDLE_S / 2)
        listener.put(b"one\n")
    assert got == [b"one\n", b"%.1f" % (begun_s + IDLE_S / 2)]


async def test_a_silent_log_answers_with_a_comment_and_never_with_its_end(autojump_clock: MockClock) -> None:
    listener = AccessLog(ManualClock()).open()
    begun_s = trio.current_time()
    assert await listener.read(0, SIZE) == b"#\n"
    assert trio.current_time() - begun_s == pytest.approx(IDLE_S)
    assert await listener.read(0, 1) == b"#"


async def test_two_readers_of_one_handle_both_end(autojump_clock: MockClock) -> None:
    listener = AccessLog(ManualClock()).open()
    got: list[tuple[bytes, float]] = []
    begun_s = trio.current_time()

    async def read() -> None:
        line = await listener.read(0, SIZE)
        got.append((line, trio.current_time() - begun_s))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        nursery.start_soon(read)
        await trio.sleep(IDLE_S / 2)
        listener.put(b"one\n")
    assert got == [(b"one\n", pytest.approx(IDLE_S / 2)), (b"#\n", pytest.approx(IDLE_S))]


async def test_lines_are_cut_to_the_size_and_none_is_lost() -> None:
    listener = AccessLog(ManualClock()).open()
    numbered(listener, 100, 5)
    pieces = [await listener.read(0, 3) for _ in range(7)]
    assert pieces[0] == b"100"
    assert b"".join(pieces) == b"100\n101\n102\n103\n104\n"


async def test_a_slow_listener_is_told_where_lines_are_missing() -> None:
    listener = AccessLog(ManualClock()).open()
    numbered(listener, 0, MAX_LINES + 7)
    first = await listener.read(0, 2)
    assert first == b"0\n"
    numbered(listener, MAX_LINES + 7, 1)
    rest = (await listener.read(0, 1 << 20)).splitlines()
    assert rest[-3:] == [b"%d" % (MAX_LINES - 1), b"# 7 operations are missing here", b"%d" % (MAX_LINES + 7)]
    numbered(listener, 0, MAX_LINES + 1)
    assert len((await listener.read(0, 1 << 20)).splitlines()) == MAX_LINES
    assert await listener.read(0, SIZE) == b"# 1 operations are missing here\n"


async def test_a_cancelled_read_ends_and_a_closed_listener_gets_nothing(autojump_clock: MockClock) -> None:
    log = AccessLog(ManualClock())
    first, second = log.open(), log.open()
    with trio.move_on_after(IDLE_S / 4) as scope:
        await first.read(0, SIZE)
    assert scope.cancelled_caught
    second.close()
    assert log.listeners == [first]


async def test_how_an_operation_went() -> None:
    clock = ManualClock()
    log = AccessLog(clock)
    listener = log.open()

    async def fails() -> None:
        clock.advance(0.25)
        raise pyfuse3.FUSEError(5)

    async def reads() -> memoryview:
        return memoryview(b"abc")

    assert await log.logged("read", Subject("/a b", "4096", "10", "17 1000 grep"), reads()) == b"abc"
    with pytest.raises(pyfuse3.FUSEError):
        await log.logged("lookup", Subject("/c"), fails())
    assert (await listener.read(0, SIZE)).decode().splitlines() == [
        "2023-11-14T22:13:20.000Z read 3 0 4096 10 17 1000 grep /a b",
        "2023-11-14T22:13:20.000Z lookup EIO 250000 - - - - - /c",
    ]


@contextmanager
def listening(mnt: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Return a `cat` of the log, once it has it open."""
    # A test run in the background inherits an ignored SIGINT; a user's command does not.
    command = ["env", "--default-signal=INT", "cat", mnt / ".tierfs/accesslog"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert lines_until(process, "#") == []  # an idle line: it listens
        yield process
    finally:
        process.kill()
        process.communicate()


def lines_until(process: subprocess.Popen[bytes], wanted: str) -> list[str]:
    """The lines before the one that `wanted` is found in, without idle ones."""
    assert process.stdout is not None
    seen: list[str] = []
    buffered = ""
    end_s = time.monotonic() + SOON_S
    while True:
        polling = select.poll()
        polling.register(process.stdout, select.POLLIN)
        assert polling.poll(max(0.0, end_s - time.monotonic()) * 1000), (wanted, seen)
        buffered += os.read(process.stdout.fileno(), SIZE).decode()
        *lines, buffered = buffered.split("\n")
        for line in lines:
            if re.search(wanted, line):
                return seen
            seen += [line] if line != "#" else []


@mounts_for_real
def test_what_is_done_shows_and_listening_does_not(store: store.Store, mount: Mount) -> None:
    append(store, "d/some name", b"x" * 5000)
    mnt = mount("direct_io").path
    with (mnt / "d/some name").open("rb", buffering=0) as early, listening(mnt) as process:
        assert os.pread(early.fileno(), 1000, 4500) == b"x" * 500
        assert (mnt / "d/some name").read_bytes() == b"x" * 5000
        os.listdir(mnt / "d")
        (mnt / ".tierfs/config").read_bytes()
        with pytest.raises(FileNotFoundError):
            (mnt / "last").stat()
        seen = lines_until(process, r" lookup ok \d+ - - \d+ \d+ \S+ /last$")
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    pattern = re.compile(time + r" (\w+) (\w+) \d+ (-|\d+) (-|\d+) (\S+) (\S+) (\S+) (/.*|-)")
    command = Path("/proc/self/comm").read_text().strip().replace(" ", "_")
    here = (str(os.getpid()), str(os.getuid()), command)
    found = [match.groups() if (match := pattern.fullmatch(line)) else line for line in seen]
    assert found[0] == ("read", "500", "4500", "1000", *here, "/d/some name")
    assert ("open", "ok", "-", "-", *here, "/d/some name") in found
    assert ("release", "ok", "-", "-", *here, "/d/some name") in found
    assert ("readdir", "ok", "0", "-", *here, "/d") in found
    assert ("open", "ok", "-", "-", *here, "/.tierfs/config") in found
    assert not any("accesslog" in line for line in seen)


@mounts_for_real
def test_failures_show_their_errno_and_what_was_deleted_its_inode(store: store.Store, mount: Mount) -> None:
    append(store, "s", b"x", seal=True)
    verbs.offload(store, "s")
    verbs.evict(store, "s")
    mnt = mount("read_priority=local-only").path
    with (mnt / "s").open("rb", buffering=0) as file, listening(mnt) as process:
        with pytest.raises(OSError, match="Input/output"):
            file.read()
        lines_until(process, r" read EIO \d+ 0 \d+ \d+ \d+ \S+ /s$")
        verbs.delete(store, "s", recursive=False)
        inode = os.fstat(file.fileno()).st_ino
        file.close()
        lines_until(process, rf" release ok \d+ - - \d+ \d+ \S+ inode {inode}$")


@mounts_for_real
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_listener_ends_and_leaves_nothing_open(
    store: store.Store, mount: Mount, number: signal.Signals
) -> None:
    mnt = mount().path
    with listening(mnt) as process:
        process.send_signal(number)
        assert process.wait(SOON_S) == -number
    tierfs("-q", "umount", mnt)  # refused while anything is open


@mounts_for_real
def test_the_end_does_not_wait_for_listeners(store: store.Store, mount: Mount) -> None:
    mounted = mount()
    with listening(mounted.path):
        mounted.process.terminate()
        assert mounted.process.wait(SOON_S) == 0
        assert eventually(lambda: not mounted.is_mounted())


async def test_a_bug_in_naming_fails_no_operation(expected_warnings: list[str]) -> None:
    class Nameless:
        def of(self, name: str, arguments: Sequence[object]) -> Subject:
            raise RuntimeError("a bug")

    class Some:
        metrics = NullMetrics()
        access_log = AccessLog(ManualClock())
        subjects = Nameless()
        counts: ClassVar[dict[str, Count]] = {}

        @operation
        async def read(self, handle: int, offset: int, size: int) -> bytes:
            return b"abc"

    expected_warnings.append("cannot find the path of a read")
    listener = Some.access_log.open()
    assert await Some().read(1, 0, 3) == b"abc"
    assert (await listener.read(0, SIZE)).endswith(b" read 3 0 - - - - - ?\n")
