"""One session of SFTP over SSH, as asyncssh makes it: opened when it is needed, and anew after it broke.

Who asks, and which server is the right one, is found as OpenSSH does: `~/.ssh/config`, keys, the agent and known_hosts.
A server whose key is not known is refused, whatever the configuration says: nobody is there to be asked.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import asyncssh
from fsspec.asyn import get_loop

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.config import ColdSettings
from tierfs.base.words.errors import InvalidRequest, PermissionDenied, TierfsError, Unavailable
from tierfs.base.words.names import printable

# Ten lines for each session that begins or ends; an error says what failed.
logging.getLogger("asyncssh").setLevel(logging.WARNING)

_Result = TypeVar("_Result")

_PORT = 22
_USERS_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
_ALL_USERS_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")

# Errors of the session; all others of SFTP are the server's answers, and the next request may be made.
_LOST = (asyncssh.SFTPNoConnection, asyncssh.SFTPConnectionLost, asyncssh.SFTPBadMessage)


@dataclass(frozen=True, slots=True)
class SshSession:
    """An open one."""

    connection: asyncssh.SSHClientConnection
    client: asyncssh.SFTPClient


class _Client(asyncssh.SSHClient):
    """Tells once its server is connected to."""

    def __init__(self, connected: Callable[[], None]) -> None:
        self._connected = connected

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self._connected()


class SshSessions:
    """The one session there is at a time. Thread-safe; its requests run side by side."""

    def __init__(self, host: str, port: int | None, user: str, settings: ColdSettings) -> None:
        """Name a server, which nothing is sent to yet; `host` may be a name of `~/.ssh/config`."""
        where: dict[str, Any] = {"host": host, "connect_timeout": None, "config": ()}
        if port is not None:
            where["port"] = port
        if user:
            where["username"] = user
        self._where = where
        at = f"{user}@" if user else ""
        self._shown = printable(f"{at}{host}" if port is None else f"{at}{host}:{port}")
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop = get_loop()
        self._lock = Lock()
        self._session: Future[SshSession] | None = None

    def open(self) -> SshSession:
        """Return the session, opened now where there is none. Raises PermissionDenied, InvalidRequest, Unavailable.

        Threads that wait for it share its error: a server that is away costs each of them one timeout, not one after
        the other.
        """
        with self._lock:
            made = _made(self._session)
            if self._session is None or (self._session.done() and (made is None or made.connection.is_closed())):
                self._session = asyncio.run_coroutine_threadsafe(self._connect(), self._loop)
            session = self._session
        return session.result()

    def begin(self, request: Awaitable[_Result]) -> Future[_Result]:
        """Send a request; `finish` has its answer."""

        async def answer() -> _Result:
            return await request

        return asyncio.run_coroutine_threadsafe(answer(), self._loop)

    def finish(self, session: SshSession, answer: Future[_Result]) -> _Result:
        """Return an answer. Raises asyncssh's errors, and Unavailable for a silence; the session may end by either."""
        try:
            return answer.result(self._settings.read_timeout_s)
        except TimeoutError as exc:
            self._drop(session)
            raise Unavailable(f"{self._shown} does not respond") from exc
        except asyncssh.Error as exc:
            if isinstance(exc, _LOST) or not isinstance(exc, asyncssh.SFTPError):
                self._drop(session)
            raise

    def ask(self, request: Callable[[asyncssh.SFTPClient], Awaitable[_Result]]) -> _Result:
        """Make one request and return its answer. Raises as `open` and `finish` do."""
        session = self.open()
        return self.finish(session, self.begin(request(session.client)))

    def close(self) -> None:
        """End the session, if there is one."""
        with self._lock:
            session, self._session = _made(self._session), None
        if session is not None:
            self._loop.call_soon_threadsafe(session.connection.abort)

    def _drop(self, session: SshSession) -> None:
        with self._lock:
            if _made(self._session) is session:
                self._session = None
        self._loop.call_soon_threadsafe(session.connection.abort)

    async def _connect(self) -> SshSession:
        """Open a session. Raises errors of tierfs only: a file that SSH misses is no missing object."""
        try:
            options = asyncssh.SSHClientConnectionOptions(**self._where)
            known = _known_hosts(options)
            connection = await self._shake_hands(options, known)
        except asyncssh.HostKeyNotVerifiable as exc:
            raise self._not_verified(exc, options, known) from exc
        except asyncssh.PermissionDenied as exc:
            raise PermissionDenied(
                f"{self._shown}: {exc.reason}", remedy="test it by hand with the same key and agent: sftp HOST"
            ) from exc
        except ValueError as exc:  # asyncssh's of its configuration, keys and known hosts
            raise InvalidRequest(
                f"{self._shown}: {exc}", remedy="see ~/.ssh; keys with a passphrase must be in ssh-agent"
            ) from exc
        except TimeoutError as exc:
            raise Unavailable(f"{self._shown} did not respond within {exc.args[0]:g} s") from exc
        except OSError as exc:  # asyncio puts an address into the text of its own errors, and the number of the error
            text = os.strerror(exc.errno) if exc.errno is not None and exc.errno > 0 else exc.strerror or exc
            raise Unavailable(f"{self._shown}: {text}") from exc
        except asyncssh.Error as exc:
            raise Unavailable(f"{self._shown}: {exc}") from exc
        # Names that are no UTF-8 are those of others, and have to pass.
        client = connection.start_sftp_client(path_errors="surrogateescape")
        try:
            return SshSession(connection, await asyncio.wait_for(client, self._settings.read_timeout_s))
        except (OSError, asyncssh.Error) as exc:
            connection.abort()
            raise Unavailable(f"{self._shown} does not serve SFTP: {str(exc) or 'no response'}") from exc

    async def _shake_hands(
        self, options: asyncssh.SSHClientConnectionOptions, known: asyncssh.SSHKnownHosts
    ) -> asyncssh.SSHClientConnection:
        """Connect, and prove to each other who asks and who answers. Raises TimeoutError with the seconds it waited.

        A server that is connected to answers: on a busy machine keys are exchanged for longer than a connection takes.
        """
        waits_s, loop = self._settings.connect_timeout_s, asyncio.get_running_loop()

        def connected() -> None:
            nonlocal waits_s
            waits_s = self._settings.read_timeout_s
            timeout.reschedule(loop.time() + waits_s)

        try:
            async with asyncio.timeout(waits_s) as timeout:
                client = partial(_Client, connected)
                return await asyncssh.connect(options=options, known_hosts=known, client_factory=client, **self._where)
        except TimeoutError as exc:
            raise TimeoutError(waits_s) from exc

    def _not_verified(
        self, error: asyncssh.Error, options: asyncssh.SSHClientConnectionOptions, known: asyncssh.SSHKnownHosts
    ) -> TierfsError:
        host, port = options.host_key_alias or options.host, options.port
        at = "" if port == _PORT else f"-p {port} "
        if any(known.match(host, "", None if port == _PORT else port)):
            return PermissionDenied(
                f"{self._shown}: its host key is not the one in known_hosts: the server was replaced or is "
                "impersonated "
                f"({error.reason})",
                remedy="check with its administrator; ssh-keygen -R removes the old key",
            )
        return PermissionDenied(
            f"{self._shown}: its host key is not in known_hosts",
            remedy=f"check and add it: ssh {at}{host}, or ssh-keyscan {at}{host} >> ~/.ssh/known_hosts",
        )


def _made(session: Future[SshSession] | None) -> SshSession | None:
    """Return a session if it was opened."""
    return session.result() if session is not None and session.done() and session.exception() is None else None


def _known_hosts(options: asyncssh.SSHClientConnectionOptions) -> asyncssh.SSHKnownHosts:
    """Return the keys of servers, of the files that OpenSSH reads.

    asyncssh by itself takes any key where `UserKnownHostsFile` is none, and never reads the files of all users.
    """
    asked: Any = options.config
    names = (
        *asked.get("UserKnownHostsFile", _USERS_HOSTS),
        *asked.get("GlobalKnownHostsFile", _ALL_USERS_HOSTS),
    )
    return asyncssh.read_known_hosts([name for name in names if Path(name).expanduser().is_file()])
