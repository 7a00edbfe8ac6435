"""The service manager that started this process, such as systemd: what it is notified of, and the form of its log.

The protocol is that of sd_notify(3), which that page describes for programs without its library: datagrams on a socket
that an environment variable gives. Only a service in the foreground uses it. Its children do not get the variables: a
mount that a unit's script starts in the background is not that unit.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import NamedTuple

log = logging.getLogger(__name__)

_SOCKET, _WATCHDOG_USEC, _WATCHDOG_PID, _JOURNAL = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "JOURNAL_STREAM"
_STDERR_FD = 2
# A full queue of the service manager holds up nothing that serves (a guess).
_SEND_S = 1.0
_US_PER_S = 1_000_000
# Priorities of sd-daemon(3), by the least level of a record.
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG_PRIORITY = 7


class WatchedStop(threading.Event):
    """An event that ends a loop. Each look at it, and each wait for it, reports that the loop runs.

    So a loop cannot forget to report, in whichever of its waits it is: for room on a disk, for a server, for a change.
    """

    def __init__(self) -> None:
        """Report nothing yet."""
        super().__init__()
        self._next_s = 0.0

    def is_set(self) -> bool:
        """Return whether the loop is to end."""
        self._report()
        return super().is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; return whether it is there."""
        self._report()
        return super().wait(timeout)

    def _report(self) -> None:
        every_s, now_s = alive_every_s(), time.monotonic()
        if every_s is not None and now_s >= self._next_s:
            self._next_s = now_s + every_s / 2
            notify_alive()


class _Manager(NamedTuple):
    """Where a service manager listens, and how soon it expects a sign of life."""

    address: str = ""
    watchdog_s: float = 0.0


_manager = _Manager()


def begin(*, in_foreground: bool) -> None:
    """Take the variables of the service manager out of the environment, and notify it from now on if `in_foreground`.

    Call it once, before threads and children exist.
    """
    global _manager  # noqa: PLW0603  # of the process, as the variables are
    from tierfs.base.words.units import decimal  # most commands need neither

    address, usec, pid = (os.environ.pop(name, "") for name in (_SOCKET, _WATCHDOG_USEC, _WATCHDOG_PID))
    is_watched = pid in ("", str(os.getpid()))
    watchdog_s = (decimal(usec) or 0) / _US_PER_S if is_watched else 0.0
    _manager = _Manager(address, watchdog_s) if in_foreground and address[:1] in ("/", "@") else _Manager()


def notify_ready() -> None:
    """Report that the service serves, at its start and after a reload."""
    _send("READY=1")


def notify_reloading() -> None:
    """Report that a reload starts; `notify_ready` ends it."""
    _send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")


def notify_stopping() -> None:
    """Report that the service ends by itself, or as a signal requested."""
    _send("STOPPING=1")


def notify_alive() -> None:
    """Report that the loop of the service runs: call it at least every `alive_every_s`."""
    _send("WATCHDOG=1")


def alive_every_s() -> float | None:
    """Return the interval of `notify_alive`: half of the manager's patience, as sd_watchdog_enabled(3) recommends.

    None where nothing watches.
    """
    return _manager.watchdog_s / 2 or None


def reads_stderr() -> bool:
    """Return whether standard error leads to systemd's log, as JOURNAL_STREAM says: `<N>` at a line is its priority."""
    device, _, inode = os.environ.get(_JOURNAL, "").partition(":")
    if not inode:
        return False
    try:
        status = os.fstat(_STDERR_FD)
    except OSError:  # closed
        return False
    return (device, inode) == (str(status.st_dev), str(status.st_ino))


def with_priority(text: str, level: int) -> str:
    """Return the lines of a text with the priority of a logging level in the form of sd-daemon(3)."""
    priority = next((number for least, number in _PRIORITIES if level >= least), _DEBUG_PRIORITY)
    return "\n".join(f"<{priority}>{line}" for line in text.split("\n"))


def _send(message: str) -> None:
    if not _manager.address:
        return
    import socket  # no command that runs for a moment needs it

    address = "\0" + _manager.address[1:] if _manager.address.startswith("@") else _manager.address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
            connection.settimeout(_SEND_S)
            connection.connect(address)
            connection.sendall(message.encode())
    except OSError as exc:
        log.warning("cannot notify the service manager at %s: %s", _manager.address, exc)
