"""Child processes and daemons.

Every child is started here, in `/`, with nothing of the caller's directory on its path of imports.

A daemon is this program started again in the foreground: nothing is forked after threads exist, and LMDB is opened only
there. A pipe gives its parent `ready`, or the error. It begins a session of its own when it is ready, and not before:
autofs lets only the processes of automount's group look at a directory that is being mounted.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, NoReturn, TypeAlias

from tierfs.base.system import daemon_log, guards, service_manager
from tierfs.base.words import errors
from tierfs.base.words.errors import TierfsError, Unavailable

_IMPORTS = "PYTHONPATH"
_READY_FD = "TIERFS_READY_FD"
_READY = b"ready"
# Of malloc.h.
_M_ARENA_MAX = -8
_ARENAS = 2
# A mount gives reads in flight 5 s.
_END_S = 15


Process: TypeAlias = subprocess.Popen[str] | subprocess.Popen[bytes]
Done: TypeAlias = subprocess.CompletedProcess[str]
TimeoutExpired = subprocess.TimeoutExpired

# A path is made absolute: a child's directory is not the caller's.
Argument: TypeAlias = str | Path

_DIRECTORY = os.sep
# States of proc_pid_stat(5).
_STOPPED = ("T", "t")


def python(module: str, *arguments: Argument) -> list[str]:
    """Return the command that runs a module as this program's child."""
    # `-m` puts the caller's directory first on the path of imports: a json.py there would run, as root for root.
    # -P takes it off. -I would also ignore PYTHONPATH and the user's site, where tierfs itself may be installed.
    return [sys.executable, "-P", "-m", module, *_words(arguments)]


def run(
    command: Sequence[Argument],
    *,
    stdin: str = "",
    timeout_s: float | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Done:
    """Run a command to its end and return its output. Raises OSError if it cannot start, TimeoutExpired."""
    return subprocess.run(
        _words(command),
        input=stdin,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=timeout_s,
        env=environment(variables),
        cwd=_DIRECTORY,
    )


def begin(command: Sequence[Argument], errors_to: BinaryIO | None = None) -> subprocess.Popen[str]:
    """Start a command in a session of its own; the caller reads its standard output and ends it."""
    return subprocess.Popen(
        _words(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors_to,
        text=True,
        start_new_session=True,
        env=environment({}),
        cwd=_DIRECTORY,
    )


def is_stopped(pid: int) -> bool:
    """Return whether a process of this machine was stopped, by a signal or a debugger."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False  # it ended
    return status.rpartition(")")[2].split()[0] in _STOPPED


def start_again_in_utf8() -> NoReturn:
    """Start this program again in Python's UTF-8 mode, in the same process, with the same words."""
    try:  # as the kernel has them: Python decoded them by the locale
        program, *words = Path("/proc/self/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        program, *words = map(os.fsencode, sys.orig_argv)
    os.environ["PYTHONUTF8"] = "1"  # for children, such as workers of Spark
    os.execv(sys.executable or program, [program, b"-X", b"utf8", *words])


def _words(command: Sequence[Argument]) -> list[str]:
    return [str(word.absolute()) if isinstance(word, Path) else word for word in command]


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment for a child in another directory, with further variables."""
    environment = {**os.environ, **variables}
    if _IMPORTS in environment:
        # Python takes an empty entry, as of "$PYTHONPATH:/lib", for the directory it starts in.
        entries = filter(None, environment[_IMPORTS].split(os.pathsep))
        environment[_IMPORTS] = os.pathsep.join(map(os.path.abspath, entries))
    return environment


def start(arguments: Sequence[Argument], log_directory: Path, name: str) -> Path:
    """Run `tierfs ARGUMENTS` as a daemon; return its log once it is ready. Raises the daemon's error.

    Its output goes to `<name>.stderr`, its log to `<name>.log`.
    """
    launch(arguments, log_directory, name)
    return _log_path(log_directory, name)


def launch(arguments: Sequence[Argument], log_directory: Path, name: str) -> subprocess.Popen[bytes]:
    """Do as `start`, but return the process, for the caller to end. Ctrl-C meanwhile ends it first."""
    errors_path = log_directory / f"{name}.stderr"
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as answer:
        try:
            with _kept_or_dropped(errors_path) as log, guards.held_back():
                process = subprocess.Popen(
                    python("tierfs", *arguments),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(write_end,),
                    env=environment({_READY_FD: str(write_end)}),
                    cwd=_DIRECTORY,
                )
        finally:
            os.close(write_end)
        try:
            message = answer.read()
        except BaseException:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):  # what ended the caller counts
                process.wait(_END_S)
            raise
    if message != _READY:
        raise _failure(message, name, errors_path)
    return process


def _kept_or_dropped(path: Path) -> BinaryIO:
    """Open the file of a daemon's output; on a disk that takes none it is dropped, and the daemon runs."""
    try:
        return path.open("ab")
    except OSError as exc:
        logging.getLogger(__name__).info("%s: %s; what the process prints is dropped", path, exc.strerror)
        return open(os.devnull, "wb")


@contextmanager
def reporting(log_directory: Path, name: str) -> Iterator[Callable[[], None]]:
    """Report from the daemon to its parent: yield a function for `ready`; errors are sent before they are raised.

    Without a parent that waits the log goes to standard error, and the service manager is notified, if there is one.
    """
    guards.hold_back()
    text = os.environ.pop(_READY_FD, None)
    ready_fd = int(text) if text is not None else None
    service_manager.begin(in_foreground=ready_fd is None)
    daemon_log.begin(None if ready_fd is None else _log_path(log_directory, name))
    try:
        yield lambda: _announce(ready_fd)
    except BaseException as exc:
        leaf = errors.leaf(exc)
        if ready_fd is not None and isinstance(leaf, TierfsError):
            fields = {"kind": type(leaf).__name__, "error": str(leaf), "remedy": leaf.remedy}
            _tell(ready_fd, json.dumps(fields).encode())
        raise
    finally:
        guards.let_through()


def _announce(ready_fd: int | None) -> None:
    service_manager.notify_ready()
    if ready_fd is not None:
        with suppress(PermissionError):  # it leads a group already
            os.setsid()
        _tell(ready_fd, _READY)
        os.close(ready_fd)


def _tell(ready_fd: int, message: bytes) -> None:
    try:
        os.write(ready_fd, message)
    except OSError as exc:  # closed after `ready`, or the parent is gone: the log has it
        logging.getLogger(__name__).debug("no parent waits for this process: %s", exc)


def _failure(message: bytes, name: str, errors_path: Path) -> TierfsError:
    if not message:
        return Unavailable(f"the {name} exited before it was ready", remedy=f"see {errors_path}")
    fields = json.loads(message)
    return errors.named(fields["kind"])(fields["error"], remedy=fields["remedy"])


def _log_path(directory: Path, name: str) -> Path:
    return directory / f"{name}.log"


def command_of(pid: int) -> str:
    """Return the name of a process's program, at most 15 characters; empty once it has ended."""
    try:
        return errors.printable(Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n"))
    except OSError:
        return ""


def share_arenas() -> None:
    """Let all threads of a process that runs for long share few of glibc's arenas; other C libraries have none.

    By default there are eight per core. Buffers pass from thread to thread, and leave each arena full of holes: a busy
    mount had 237 MiB in 17 of them after 14 minutes, and went on growing; in two they have 66 MiB after 8 (measured).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)
