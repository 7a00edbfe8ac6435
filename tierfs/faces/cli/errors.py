"""Turn exceptions into a message on stderr and an exit code; no other module does.

Exit codes: those of errors.py, which checks use too, 2 for usage, 70 for an internal error (a bug), 130 after Ctrl-C,
141 when the reader of a pipe went away (the code that a shell reports for `cat` then).
"""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import click

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import errors
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.names import printable
from tierfs.faces.cli.session import VERBOSE, Session
from tierfs.faces.cli.standard_streams import to_stderr

EXIT_UNCHECKED = 11
EXIT_INTERNAL = 70
EXIT_DAMAGED = 74
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141
_STDOUT_FD = 1

_KINDS_BY_ERRNO: Mapping[int, type[TierfsError]] = {
    errno.ENOENT: errors.NotFound,
    errno.EACCES: errors.PermissionDenied,
    errno.EPERM: errors.PermissionDenied,
    errno.ENOTDIR: errors.NotDirectory,
    errno.EISDIR: errors.IsDirectory,
    errno.EEXIST: errors.AlreadyExists,
    errno.ENAMETOOLONG: errors.InvalidRequest,
    errno.EBADF: errors.InvalidRequest,
    errno.ELOOP: errors.InvalidRequest,
    errno.EROFS: errors.ReadOnlyDisk,
    errno.ENOSPC: errors.StorageFull,
    errno.EDQUOT: errors.StorageFull,
    errno.EFBIG: errors.StorageFull,
}


class Partial(Exception):
    """A command that stopped half-way: the error that stopped it, and the part that is done."""

    def __init__(self, cause: BaseException, done: str, *, remedy: str | None = None, **details: Any) -> None:
        super().__init__(done)
        self.cause = cause
        self.remedy = remedy
        self.details = details


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as the user sees it."""

    message: str
    kind: str
    exit_code: int
    remedy: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


def report(error: BaseException, session: Session) -> int:
    """Print an error and return its exit code."""
    error = errors.leaf(error)  # trio wraps those of its tasks
    if isinstance(error, BrokenPipeError):
        _silence_stdout()
        return EXIT_PIPE_CLOSED
    from tierfs.base.system import os_errors

    if isinstance(error, OSError) and error.errno in os_errors.NO_ROOM:
        _silence_stdout()  # the full disk may be that of stdout
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    failure = describe(error)
    if failure.exit_code == EXIT_INTERNAL and session.verbosity >= VERBOSE:
        traceback.print_exception(error)
    show(failure, session)
    return failure.exit_code


def show(failure: Failure, session: Session) -> None:
    """Print a failure: one line and its remedy below, or one JSON object."""
    if session.json:
        data = {
            "error": failure.message,
            "kind": failure.kind,
            "exit": failure.exit_code,
            "remedy": failure.remedy,
            **failure.details,
        }
        to_stderr(json.dumps(data), logging.ERROR)
        return
    to_stderr(f"tierfs: {printable(failure.message)} ({failure.kind}, exit {failure.exit_code})", logging.ERROR)
    for line in (failure.remedy or "").splitlines():
        to_stderr(f"  {printable(line)}", logging.ERROR)


def report_parts(
    session: Session, failed: Sequence[tuple[str, TierfsError]], fatal: BaseException | None = None
) -> None:
    """Print the errors of parts of a command by their names, and exit with the code of `fatal`, or else of the first.

    With --json the result has them already, by `parts`.
    """
    if not session.json:
        for name, error in failed:
            failure = describe(error)
            named = failure.message if name in failure.message else f"{name}: {failure.message}"
            show(replace(failure, message=named, details={}), session)
    first = fatal or (failed[0][1] if failed else None)
    if first is None:
        return
    failure = describe(first)
    if session.json or not isinstance(first, TierfsError):
        show(failure, session)
    raise click.exceptions.Exit(failure.exit_code)


def parts(failed: Sequence[tuple[str, TierfsError]], key: str) -> list[dict[str, str]]:
    """Return the errors of parts as JSON data, each with the name of its part under `key`."""
    return [{key: name, "error": str(error), "kind": type(error).__name__} for name, error in failed]


def describe(error: BaseException) -> Failure:
    """Return the user's view of an error; a class without a rule here is an internal error."""
    if isinstance(error, Partial):
        cause = describe(error.cause)
        remedy = "\n".join(filter(None, (cause.remedy, error.remedy)))
        return Failure(f"{cause.message}; {error}", cause.kind, cause.exit_code, remedy or None, error.details)
    if isinstance(error, OSError):
        error = from_os_error(error)
    if isinstance(error, TierfsError):
        return Failure(str(error), type(error).__name__, error.exit_code, error.remedy)
    if isinstance(error, click.ClickException):
        return _usage(error)
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return Failure("interrupted", "Interrupted", EXIT_INTERRUPTED)
    text = f"internal error: {type(error).__name__}: {error}"
    return Failure(text, "InternalError", EXIT_INTERNAL, "this is a bug in tierfs; -v shows the traceback")


def from_os_error(error: OSError) -> TierfsError:
    """Return the tierfs error for an error of the operating system; it names the file if that is known."""
    kind = _KINDS_BY_ERRNO.get(error.errno or 0, errors.Unavailable)
    reason = error.strerror or str(error)
    name = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else error.filename
    remedy = errors.READ_ONLY_REMEDY if error.errno == errno.EROFS else None
    return kind(reason if name is None else f"{name}: {reason}", remedy=remedy)


def _usage(error: click.ClickException) -> Failure:
    # click adds the options that are written most alike, of which one may switch off what keeps bytes safe.
    text = error.message if isinstance(error, click.NoSuchOption) else error.format_message()
    message = text.rstrip(".").replace("\n", " ")
    if error.__class__ is not click.UsageError:
        message = message[:1].lower() + message[1:]
    context = getattr(error, "ctx", None)
    remedy = getattr(error, "remedy", None)  # of a word that is no command: what may be meant
    if isinstance(error, click.NoSuchOption):
        from tierfs.faces.cli.guesses import option_meant

        remedy = option_meant(error.option_name, context)
    if remedy is None and context is not None:
        remedy = f"see: {context.command_path} --help"
    if isinstance(error, click.MissingParameter) and context is not None:
        remedy = "\n".join(
            (f"usage: {' '.join([context.command_path, *context.command.collect_usage_pieces(context)])}", remedy or "")
        )
    return Failure(message, "UsageError", error.exit_code, remedy)


def _silence_stdout() -> None:
    """Discard the rest of stdout: its flush at exit would fail again and change the exit code."""
    if sys.stdout is not sys.__stdout__:
        return  # called from a program that replaced stdout
    devnull_fd = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull_fd, _STDOUT_FD)
    os.close(devnull_fd)
