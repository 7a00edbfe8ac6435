"""Run a module as `python -m MODULE WORDS` does, and kill it just before its n-th changing system call.

    python -m tests.reality.stopped COUNT N MODULE WORDS...

The file COUNT gets the number of its changing calls, those of all its threads and children; N is 0 to let it live.
The kernel asks a process of ours before each of them (seccomp's user notification), so that a call that was not allowed
never began. strace counts per thread, and ptrace stops at every call: of 20,000 that an offload makes 300 change
something.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import runpy
import select
import signal
import socket
import struct
import sys
from functools import cache
from pathlib import Path

from tests.children import die

KILLED = 128 + signal.SIGKILL
"""Exit code of the whole where the module was killed."""

WRITES = ("write", "writev", "sendto", "sendmsg")
"""These change something unless they only wake another thread."""
CHANGES = (
    *("pwrite64", "pwritev", "pwritev2", "copy_file_range", "sendfile", "splice", "msync"),
    *("fsync", "fdatasync", "sync_file_range", "fallocate", "ftruncate", "truncate"),
    *("rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "unlink", "unlinkat"),
    *("mkdir", "mkdirat", "rmdir", "chmod", "fchmod", "fchmodat", "setxattr", "fsetxattr", "utimensat"),
)
CREATES = {"open": 1, "openat": 2}
"""These change something with O_CREAT in the argument of that number."""

# From linux/seccomp.h and libseccomp's seccomp.h.
_ALLOW, _NOTIFY, _NOT_EQUAL, _MASKED_EQUAL = 0x7FFF0000, 0x7FC00000, 1, 7
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_NOTIFICATION, _ANSWER = struct.Struct("QII iIQ6Q"), struct.Struct("QqiI")
_CONTINUE = 1
_DIE_WITH_PARENT = 1
_CONTROL_FD = 900


class _Compared(ctypes.Structure):
    """struct scmp_arg_cmp: which values of an argument are meant."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("how", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


def _notified() -> int:
    """Let the kernel ask from now on; return the descriptor by which it does."""
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_ALLOW)))

    def ask(name: str, *compared: _Compared) -> None:
        number = library.seccomp_syscall_resolve_name(name.encode())
        array = (_Compared * len(compared))(*compared)
        code = library.seccomp_rule_add_array(rules, ctypes.c_uint32(_NOTIFY), number, len(compared), array)
        assert code == 0, (name, code)

    for name in (*CHANGES, *WRITES):
        # By this one the descriptor leaves the process before anybody can answer.
        ask(name, *([_Compared(0, _NOT_EQUAL, _CONTROL_FD, 0)] if name in WRITES else []))
    for name, argument in CREATES.items():
        ask(name, _Compared(argument, _MASKED_EQUAL, os.O_CREAT, os.O_CREAT))
    code = library.seccomp_load(rules)
    assert code == 0, os.strerror(-code)
    return int(library.seccomp_notify_fd(rules))


def watched(count: Path, last: int) -> None:
    """Fork; return in the child, which is watched and dies at its call `last`. The parent ends as the child did."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if not pid:
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        os.dup2(theirs.fileno(), _CONTROL_FD)
        for end in (ours, theirs):
            end.close()
        with socket.socket(fileno=_CONTROL_FD) as control:
            listener = _notified()
            socket.send_fds(control, [b"x"], [listener])
        os.close(listener)
        return
    theirs.close()
    signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
    _, (listener,), *_ = socket.recv_fds(ours, 1, 1)
    calls = _allow(listener, pid, last)
    _, status = os.waitpid(pid, 0)
    count.write_text(str(calls))
    code = os.waitstatus_to_exitcode(status)
    die(code if code >= 0 else 128 - code)


def _allow(listener: int, pid: int, last: int) -> int:
    """Allow changing calls until the last, or until nobody is left who could make one; return their number."""
    calls, ready = 0, select.poll()
    ready.register(listener, select.POLLIN)
    while ready.poll()[0][1] & select.POLLIN:
        buffer = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, buffer)
        except FileNotFoundError:  # killed while it waited
            continue
        mark, thread, _, number, _, _, argument, *_ = _NOTIFICATION.unpack(buffer)
        calls += not _only_wakes(thread, number, argument)
        if calls == last:
            os.kill(pid, signal.SIGKILL)
            break
        try:
            fcntl.ioctl(listener, _SEND, _ANSWER.pack(mark, 0, 0, _CONTINUE))
        except FileNotFoundError:
            continue
    return calls


def _only_wakes(thread: int, number: int, fd: int) -> bool:
    """Whether a call writes to a pipe or event of the process itself; standard streams tell people something."""
    if number not in _write_numbers() or fd <= sys.stderr.fileno():
        return False
    try:
        return os.readlink(f"/proc/{thread}/fd/{fd}").startswith(("pipe:", "anon_inode:"))
    except OSError:  # killed, or closed by another thread
        return True


@cache
def _write_numbers() -> set[int]:
    library = ctypes.CDLL("libseccomp.so.2")
    return {library.seccomp_syscall_resolve_name(name.encode()) for name in WRITES}


def main() -> None:
    count, last, module, *words = sys.argv[1:]
    watched(Path(count), int(last))
    sys.argv[1:] = words
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
