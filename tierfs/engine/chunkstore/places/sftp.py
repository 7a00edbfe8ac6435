"""Files of a server by SFTP, version 3 with OpenSSH's extensions: every server of note has that one.

A failure has one code, "Failure", for a name that is taken, a full disk, and a file where a directory should be: which
of them it was is looked up afterwards. Extensions: https://github.com/openssh/openssh-portable/blob/master/PROTOCOL
"""

from __future__ import annotations

import errno
import stat
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import Any, TypeVar

import asyncssh

from tierfs.base.words.errors import InvalidRequest, PermissionDenied, TierfsError, Unavailable
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.places.files import FileStatus
from tierfs.engine.chunkstore.places.ssh import SshSession, SshSessions
from tierfs.engine.chunkstore.places.steps import source_steps
from tierfs.engine.chunkstore.probe import Traits
from tierfs.engine.chunkstore.protocol import OnReceived, Source
from tierfs.engine.chunkstore.validate import STEP_BYTES

_Result = TypeVar("_Result")

_MS_PER_S = 1000

# Modes of opening a file.
_READ = "rb"
_NEW = "xb"
_ANEW = "wb"

# Steps under way at once: 8 MiB fill a line of 100 MB/s with a round trip of 80 ms.
_STEPS_AT_ONCE = 8

# Whoever had a name when we tried to make the file may have removed it before we look, as the loser of a race does.
_OPENS = 3

# Entries of a directory by one request of this process: some of the server's.
_ENTRIES = 1000

_REFUSED = (asyncssh.SFTPPermissionDenied, asyncssh.PermissionDenied)
_NEVER = (asyncssh.SFTPOpUnsupported, asyncssh.SFTPBadMessage)  # OpenSSH's code for a name that is too long


class SftpFiles:
    """Files of a server that is reached by SSH."""

    traits = Traits(
        create_only="link(2) on the server, or a rename that refuses an existing name",
        checksum="SSH authenticates each packet",
    )
    resolution_ms = _MS_PER_S
    vendor_errors: tuple[type[Exception], ...] = (asyncssh.Error,)

    def __init__(self, sessions: SshSessions) -> None:
        """Use the sessions of one server."""
        self._sessions = sessions

    def meaning(self, error: Exception) -> type[TierfsError]:
        if isinstance(error, _REFUSED):
            return PermissionDenied
        return InvalidRequest if isinstance(error, _NEVER) else Unavailable

    def status(self, path: str) -> FileStatus:
        with self._lookup(path):
            attributes = self._stat(path)
        if not stat.S_ISREG(attributes.permissions or 0):
            raise FileNotFoundError(path)
        return _status(attributes)

    def entries(self, directory: str) -> Iterable[tuple[str, FileStatus | None]]:
        session = self._sessions.open()
        names: Any = session.client.scandir(directory)  # a generator, which its type does not say

        async def page() -> list[asyncssh.SFTPName]:
            listed: list[asyncssh.SFTPName] = []
            async for name in names:
                listed.append(name)
                if len(listed) == _ENTRIES:
                    break
            return listed

        try:
            while True:
                with self._lookup(directory):
                    listed = self._sessions.finish(session, self._sessions.begin(page()))
                for entry in listed:
                    name, kind = str(entry.filename), entry.attrs.permissions or 0
                    if stat.S_ISREG(kind):
                        yield name, _status(entry.attrs)
                    elif stat.S_ISDIR(kind) and name not in (".", ".."):
                        yield name, None
                if len(listed) < _ENTRIES:
                    return
        finally:
            self._sessions.begin(names.aclose())  # of a listing that is not read to its end the server keeps a handle

    def read_into(self, path: str, offset: int, buffer: memoryview, progress: OnReceived | None) -> None:
        with self._opened(path, _READ) as (session, file):
            starts = range(0, len(buffer), STEP_BYTES)
            asked: Iterable[Future[Any]]  # bytes, since the file is open as one of these
            asked = (self._sessions.begin(file.read(len(buffer[at : at + STEP_BYTES]), offset + at)) for at in starts)
            for start, data in zip(starts, self._in_order(session, asked), strict=True):
                end = min(start + STEP_BYTES, len(buffer))
                if len(data) != end - start:
                    raise Unavailable(f"{printable(path)}: {start + len(data)} of {len(buffer)} bytes arrived")
                buffer[start:end] = data
                if progress is not None:
                    progress(end)

    def write(self, path: str, source: Source, *, create_only: bool = False) -> None:
        mode = _NEW if create_only else _ANEW
        try:
            self._write(path, source, mode)
        except FileNotFoundError:
            self.make_directories(path.rpartition("/")[0])
            self._write(path, source, mode)

    def _write(self, path: str, source: Source, mode: str) -> None:
        with self._opened(path, mode) as (session, file):
            starts = range(0, source.length_bytes, STEP_BYTES)
            steps = zip(starts, source_steps(path, source), strict=True)
            sent = (self._sessions.begin(file.write(bytes(step), at)) for at, step in steps)
            try:
                deque(self._in_order(session, sent), maxlen=0)
                self._sync(session, file)
            except asyncssh.SFTPFailure as exc:
                if self._is_full(session, file):
                    raise OSError(errno.ENOSPC, "the server's disk is full") from exc
                raise

    def _is_full(self, session: SshSession, file: asyncssh.SFTPClientFile) -> bool:
        """Return whether the server says that its disk is full; another server than OpenSSH may not say."""
        with suppress(asyncssh.SFTPError):
            free = self._sessions.finish(session, self._sessions.begin(file.statvfs()))
            return bool(free.bavail * free.frsize < STEP_BYTES)
        return False

    def rename(self, path: str, target: str, *, overwrite: bool) -> None:
        if overwrite:
            self._ask(target, lambda client: client.posix_rename(path, target))
        else:
            self._rename_once(path, target)
        # A new name is durable with its directory. OpenSSH opens that as it does a file; another server may refuse to.
        with suppress(asyncssh.SFTPError), self._opened(target.rpartition("/")[0] or "/", _READ) as (session, file):
            self._sync(session, file)

    def _rename_once(self, path: str, target: str) -> None:
        """Give a file a name, unless that is taken."""
        try:
            self._ask(target, lambda client: client.link(path, target))
        except asyncssh.SFTPFailure as exc:
            self._require_free(target, exc)
            raise
        except (asyncssh.SFTPOpUnsupported, asyncssh.SFTPPermissionDenied):
            # A server, or a filesystem, without hard links. OpenSSH's rename refuses a taken name; of another server
            # the probe finds out.
            try:
                self._ask(target, lambda client: client.rename(path, target))
            except asyncssh.SFTPFailure as exc:
                self._require_free(target, exc)
                raise
            return
        with suppress(FileNotFoundError):
            self.remove(path)

    def make_directories(self, path: str) -> None:
        self._ask(path, lambda client: client.makedirs(path, exist_ok=True))

    def set_modified(self, path: str, modified_ms: int) -> None:
        seconds = modified_ms // _MS_PER_S
        self._ask(path, lambda client: client.utime(path, (seconds, seconds)))

    def remove(self, path: str) -> None:
        self._ask(path, lambda client: client.remove(path))

    def remove_empty(self, path: str) -> bool:
        try:
            self._ask(path, lambda client: client.rmdir(path))
        except (OSError, asyncssh.SFTPFailure, asyncssh.SFTPPermissionDenied):  # gone, or not empty
            return False
        return True

    def close(self) -> None:
        self._sessions.close()

    @contextmanager
    def _opened(self, path: str, mode: str) -> Iterator[tuple[SshSession, asyncssh.SFTPClientFile]]:
        """Yield an open file, and the session that has it open."""
        session = self._sessions.open()
        with self._lookup(path):
            file = self._open(session, path, mode)
        try:
            yield session, file
        except BaseException:
            self._sessions.begin(file.close())  # nobody waits: the session may be gone, and the file with it
            raise
        closed = self._sessions.begin(file.close())
        if mode != _READ:
            self._sessions.finish(session, closed)

    def _open(self, session: SshSession, path: str, mode: str) -> asyncssh.SFTPClientFile:
        for attempts_left in reversed(range(_OPENS if mode == _NEW else 1)):
            try:
                return self._sessions.finish(session, self._sessions.begin(session.client.open(path, mode)))
            except asyncssh.SFTPFailure as exc:
                if mode == _NEW:
                    self._require_free(path, exc)
                if not attempts_left:
                    raise
        raise AssertionError("unreachable")

    def _in_order(self, session: SshSession, requests: Iterable[Future[_Result]]) -> Iterator[_Result]:
        """Yield the answers to requests that are sent while others are under way."""
        under_way: deque[Future[_Result]] = deque()
        for request in requests:
            under_way.append(request)
            if len(under_way) == _STEPS_AT_ONCE:
                yield self._sessions.finish(session, under_way.popleft())
        while under_way:
            yield self._sessions.finish(session, under_way.popleft())

    def _sync(self, session: SshSession, file: asyncssh.SFTPClientFile) -> None:
        with suppress(asyncssh.SFTPOpUnsupported):  # then it is on the disk when the server thinks fit
            self._sessions.finish(session, self._sessions.begin(file.fsync()))

    def _ask(self, path: str, request: Callable[[asyncssh.SFTPClient], Awaitable[_Result]]) -> _Result:
        """Make one request about `path`."""
        with self._lookup(path):
            return self._sessions.ask(request)

    @contextmanager
    def _lookup(self, path: str) -> Iterator[None]:
        """Raise FileNotFoundError, and NotADirectoryError for a failure where a file is above `path`."""
        try:
            yield
        except asyncssh.SFTPNoSuchFile as exc:
            raise FileNotFoundError(path) from exc
        except asyncssh.SFTPFailure as exc:
            if self._is_below_a_file(path):
                raise NotADirectoryError(path) from exc
            raise

    def _is_below_a_file(self, path: str) -> bool:
        for above in PurePosixPath(path).parents:
            try:
                return not stat.S_ISDIR(self._stat(str(above)).permissions or 0)
            except asyncssh.SFTPNoSuchFile:
                return False
            except asyncssh.SFTPFailure:
                continue
        return False

    def _stat(self, path: str) -> asyncssh.SFTPAttrs:
        return self._sessions.ask(lambda client: client.stat(path))

    def _require_free(self, path: str, error: asyncssh.SFTPFailure) -> None:
        """Raise FileExistsError where something has the name."""
        with suppress(asyncssh.SFTPError):
            self._sessions.ask(lambda client: client.lstat(path))
            raise FileExistsError(path) from error


def _status(attributes: asyncssh.SFTPAttrs) -> FileStatus:
    return FileStatus(attributes.size or 0, (attributes.mtime or 0) * _MS_PER_S)
