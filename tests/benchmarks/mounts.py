"""Any program that mounts, as a measured process tree: started, tuned, watched and ended whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.measuring import cpu_seconds, peak_rss_bytes
from tierfs.mount.mountpoint import tune_read_ahead

_START_S = 60
"""A mount that does not show by then does not come."""
_POLL_S = 0.02
_END_S = 20
"""Time to end after the unmount, before it is killed."""
_LIMIT_S = 1200
"""A mount that takes longer for one measurement hangs; killing it fails the reads that wait for it."""
_LOG_TAIL = 800


class SubjectFailed(Exception):
    """A subject could not be measured: it did not mount, did not answer, or gave wrong bytes."""


@dataclass(frozen=True)
class MountCommand:
    """How a mount is started in the foreground."""

    arguments: tuple[str, ...]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    read_ahead: bool = True
    """Whether the kernel's read-ahead is raised to 1 MiB for it, as a tierfs mount does by itself."""


@dataclass(frozen=True)
class Mount:
    """A mount that answers."""

    root: Path
    pid: int

    def cpu_s(self) -> float:
        """CPU time of its processes so far."""
        return sum(map(cpu_seconds, process_tree(self.pid)))

    def peak_rss_bytes(self) -> int:
        """Highest resident memory of its processes so far, added up."""
        return sum(map(peak_rss_bytes, process_tree(self.pid)))


@contextmanager
def mounted(command: MountCommand, mountpoint: Path) -> Iterator[Mount]:
    """Run it, wait until it is mounted; afterwards unmount, and return when its processes are gone.

    Raises SubjectFailed with the end of its log when it does not mount, and when what is done with it fails.
    """
    mountpoint.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **command.environment}
    with command.log.open("wb") as log:
        process = subprocess.Popen(
            command.arguments,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # one process group, which can be killed as a whole
        )
    watchdog = threading.Timer(_LIMIT_S, _kill_group, [process.pid])
    watchdog.daemon = True
    watchdog.start()
    try:
        _wait_mounted(process, mountpoint, command)
        if command.read_ahead:
            tune_read_ahead(mountpoint)
        yield Mount(mountpoint, process.pid)
    except Exception as exc:
        raise SubjectFailed(f"{exc}; its log: {_log_tail(command)}") from exc
    finally:
        watchdog.cancel()
        _end(process, mountpoint)


def process_tree(pid: int) -> list[int]:
    """A process and everything below it that still runs; any of its threads may have started a child."""
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            started = children.read_text().split()
        except OSError:
            continue  # the thread ended
        found += [below for child in started for below in process_tree(int(child))]
    return found


def is_mounted(mountpoint: Path) -> bool:
    """Whether something is mounted there, without asking the mount."""
    wanted = os.path.realpath(mountpoint.parent) + f"/{mountpoint.name}"
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split()[4] == wanted for line in lines)


def _wait_mounted(process: subprocess.Popen[bytes], mountpoint: Path, command: MountCommand) -> None:
    deadline = time.monotonic() + _START_S
    while not is_mounted(mountpoint):
        if process.poll() is not None or time.monotonic() > deadline:
            raise SubjectFailed(f"{command.arguments[0]} did not mount")
        time.sleep(_POLL_S)
    os.stat(mountpoint)


def _log_tail(command: MountCommand) -> str:
    return command.log.read_text(errors="replace")[-_LOG_TAIL:].strip() or "(empty)"


def _end(process: subprocess.Popen[bytes], mountpoint: Path) -> None:
    if is_mounted(mountpoint):
        take_down = ["umount", "-l"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
        subprocess.run([*take_down, str(mountpoint)], check=True)
    else:
        process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _kill_group(process.pid)


def _kill_group(group: int) -> None:
    """Kill what is left of the session that this module started."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
