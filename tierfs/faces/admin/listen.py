"""Open the sockets of the admin API, and serve until a signal ends it."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from email.utils import formatdate
from functools import partial
from pathlib import Path

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import ServerState

from tierfs.app import store as app
from tierfs.app.connection import CONNECTIONS, Connection, StorePlace
from tierfs.base.options.config import AdminSettings
from tierfs.base.system import daemon_log, guards, os_errors, osio, processes, service_manager
from tierfs.base.system.addresses import is_loopback, parse_address
from tierfs.base.system.clock import Clock
from tierfs.base.system.store_paths import ADMIN_NAME, StorePaths, require_trusted
from tierfs.base.words.errors import InvalidRequest, Unavailable
from tierfs.base.words.names import printable
from tierfs.faces.admin.appends import Appends
from tierfs.faces.admin.bodies import Bodies
from tierfs.faces.admin.consolidations import Consolidations
from tierfs.faces.admin.dashboard.pages import Dashboard
from tierfs.faces.admin.dashboard.sessions import LoginSessions
from tierfs.faces.admin.dashboard.views import Views
from tierfs.faces.admin.guard import Admission
from tierfs.faces.admin.offloads import Offloads
from tierfs.faces.admin.protocol import BoundedProtocol
from tierfs.faces.admin.pulsar.served import PulsarResources
from tierfs.faces.admin.resources import Resources
from tierfs.faces.admin.routes import application
from tierfs.faces.admin.senders import LEAST_TOKEN, SenderTokens, is_token, require_private
from tierfs.faces.python.store import Store
from tierfs.upkeep.holder.lock import HeldElsewhere, Hold

log = logging.getLogger(__name__)

# Time for requests under way when the process is told to end.
_END_S = 10.0

_BACKLOG = 512

# New connections over TCP in a second, where anybody may connect: each one that a stranger fills before he is refused
# takes 2 ms of a processor, most of it in the kernel.
_NEW_PER_S = 100

# Pause where no connection can be accepted, as for want of descriptors (as asyncio).
_FAILED_S = 1.0

_TOKEN_BYTES = 32
# sockaddr_un(7) has 108 bytes with the NUL.
_MOST_SOCKET_PATH = 107
_EXAMPLE = "127.0.0.1:9160"


def serve_foreground(store_path: Path) -> None:
    """Serve a store in a process of its own, until SIGTERM or SIGINT. Raises as `serve`, and what opening it raises."""
    require_trusted(store_path)  # before a log is written there
    with processes.reporting(StorePaths(store_path).log, ADMIN_NAME) as announce:
        connection = CONNECTIONS.get(StorePlace(os.path.abspath(store_path)))
        settings = connection.store.settings.log
        daemon_log.set_format(settings.level, settings.format)
        processes.share_arenas()
        asyncio.run(serve(connection, announce))
        del connection  # the last user closes the store, before the daemon reports its end


async def serve(
    connection: Connection,
    announce: Callable[[], None],
    told_to_end: Callable[[Callable[[], None]], asyncio.Event] | None = None,
) -> None:
    """Serve a store until SIGTERM or SIGINT; SIGHUP reads its settings again. `told_to_end` takes their place.

    Raises HeldElsewhere where another process serves it, InvalidRequest and PermissionDenied for settings that are
    refused, Unavailable for an address that cannot be served.
    """
    store = connection.store
    settings = store.settings.admin
    with _held(store.paths, store.clock), Store(connection) as face:
        appends, offloads = Appends(store, settings.writer_idle_s), Offloads(store)
        consolidations = Consolidations(store)
        bodies = Bodies(settings.bodies_bytes, settings.body_bytes)
        resources = Resources(face, store, appends, offloads, consolidations, bodies)
        for_pulsar = PulsarResources(store, offloads, bodies, resources.in_thread)
        dashboard = Dashboard(Views(store, offloads), bodies)
        senders = SenderTokens()
        _read_senders(store, senders)
        resources.sample_metrics()
        try:
            with _unix_socket(store.paths.admin_socket) as unix:
                async with _Serving(application(resources, for_pulsar, dashboard), settings) as serving:
                    await serving.listen(unix, Admission(), peers_uid=os.geteuid())
                    if settings.listen:
                        await _listen_tcp(serving, store, settings, senders)
                    # Who is told that we serve may end us at once.
                    ended = (told_to_end or _told_to_end)(partial(_reload, store, senders))
                    announce()
                    await _alive_until(ended)
        finally:
            await appends.close()
            await asyncio.to_thread(offloads.close)
            await asyncio.to_thread(consolidations.close)


def _reload(store: app.Store, senders: SenderTokens) -> None:
    store.reload()
    _read_senders(store, senders)


def _read_senders(store: app.Store, senders: SenderTokens) -> None:
    name = store.settings.admin.senders
    senders.read(store.paths.root / name if name else None)


class _Serving:
    """The listeners and connections. An async context manager."""

    def __init__(self, app: ASGIApp, settings: AdminSettings) -> None:
        self._settings = settings
        self._config = Config(
            app,
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="error",  # what strangers send is no news: it would turn the log over
            server_header=False,
            proxy_headers=False,
            ws="none",
        )
        self._config.load()
        self._state = ServerState()
        self._listening: list[asyncio.Task[None]] = []
        self._clock: asyncio.Task[None] | None = None

    async def listen(
        self, sock: socket.socket, admission: Admission, tls: ssl.SSLContext | None = None, peers_uid: int | None = None
    ) -> None:
        """Take connections of one socket."""
        settings, config, state = self._settings, self._config, self._state

        class _Bound(BoundedProtocol):
            pass

        _Bound.settings, _Bound.peers_uid = settings, peers_uid
        sock.listen(_BACKLOG)
        sock.setblocking(False)
        pause_s = 1 / _NEW_PER_S if peers_uid is None else 0
        accepting = self._accept(sock, lambda: _Bound(config, state, {"admission": admission}), tls, pause_s)
        self._listening.append(asyncio.get_running_loop().create_task(accepting))

    async def _accept(
        self,
        sock: socket.socket,
        bound: Callable[[], BoundedProtocol],
        tls: ssl.SSLContext | None,
        pause_s: float,
    ) -> None:
        """Serve the connections of a listener; close one too many before it costs anything, as a handshake of TLS does.

        Each listener has its own limit: the owner's socket answers while strangers fill the other. A connection is
        followed by a pause, but for those of a second, which may come at once; meanwhile others wait in the kernel.
        """
        loop = asyncio.get_running_loop()
        serving = set[asyncio.Task[None]]()
        due_s = loop.time() - 1
        with closing(sock):
            while True:
                try:
                    connection, _ = await loop.sock_accept(sock)
                except OSError as exc:
                    log.warning("no connections are accepted for %g s: %s", _FAILED_S, exc)
                    await asyncio.sleep(_FAILED_S)
                    continue
                if len(serving) < self._settings.connections:
                    task = loop.create_task(self._serve(connection, bound, tls))
                    serving.add(task)
                    task.add_done_callback(serving.discard)
                else:
                    connection.close()
                due_s = max(due_s, loop.time() - 1) + pause_s
                await asyncio.sleep(due_s - loop.time())  # requests have their turn in any case

    async def _serve(
        self, connection: socket.socket, bound: Callable[[], BoundedProtocol], tls: ssl.SSLContext | None
    ) -> None:
        """Serve a connection until it is lost."""
        handshake_s = None if tls is None else self._settings.head_s
        with suppress(OSError):  # of a handshake that fails, or takes too long
            _, protocol = await asyncio.get_running_loop().connect_accepted_socket(
                bound, connection, ssl=tls, ssl_handshake_timeout=handshake_s
            )
            await protocol.lost.wait()

    async def __aenter__(self) -> _Serving:
        self._clock = asyncio.get_running_loop().create_task(self._tell_time())
        return self

    async def __aexit__(self, *error: object) -> None:
        for listening in self._listening:
            listening.cancel()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=_END_S)
        for connection in list(self._state.connections):
            connection.transport.abort()
        if self._clock is not None:
            self._clock.cancel()

    async def _tell_time(self) -> None:
        while True:
            self._state.default_headers = [
                (b"date", formatdate(usegmt=True).encode()),
                (b"x-content-type-options", b"nosniff"),
                (b"cache-control", b"no-store"),
            ]
            await asyncio.sleep(1)


@contextmanager
def _held(paths: StorePaths, clock: Clock) -> Iterator[None]:
    """Be the one process that serves the store's admin API."""
    try:
        held = Hold(paths.admin, clock)
    except HeldElsewhere as exc:
        raise HeldElsewhere(str(exc).replace("held", "served"), remedy="use that process, or stop it first") from exc
    try:
        yield
    finally:
        held.release()


@contextmanager
def _unix_socket(path: Path) -> Iterator[socket.socket]:
    """Bind the socket, which no other user may open; its file goes with the block."""
    with suppress(FileNotFoundError):
        path.unlink()  # of a process that was killed: the lock is ours
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)  # the file is never, not even for a moment, another user's to connect to
        try:
            text = str(path)
            sock.bind(text if len(text) <= _MOST_SOCKET_PATH else f"/proc/self/fd/{directory}/{path.name}")
        except OSError as exc:
            sock.close()
            raise Unavailable(f"cannot bind {printable(str(path))}: {exc.strerror}") from exc
        finally:
            os.umask(before)
    finally:
        os.close(directory)
    try:
        yield sock
    finally:
        sock.close()
        with suppress(FileNotFoundError):
            path.unlink()


async def _listen_tcp(serving: _Serving, store: app.Store, settings: AdminSettings, senders: SenderTokens) -> None:
    root = store.paths.root
    host, port = parse_address("admin.listen", settings.listen, _EXAMPLE)
    loopback = is_loopback(host)
    tls = _tls(root, settings)
    if tls is None and not loopback:
        raise InvalidRequest(
            f"admin.listen = {printable(settings.listen)} is a public address; the token would be sent unencrypted",
            remedy="set admin.certificate and admin.key, or listen at 127.0.0.1",
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as exc:
        raise Unavailable(
            f"cannot serve the admin API at {printable(settings.listen)}: {exc.strerror or exc}",
            remedy="set admin.listen to a free address of this machine",
        ) from exc
    names = {host.lower(), f"[{host.lower()}]", *settings.names.lower().split()}
    if loopback:
        names |= {"localhost", "127.0.0.1", "[::1]"}
    token = _token(root / settings.token)
    with store.metadata.read() as txn:
        sessions = LoginSessions(token, txn.store.store_id, store.clock, secure=tls is not None)
    await serving.listen(sock, Admission(token, frozenset(names), sessions, senders), tls)


def _tls(root: Path, settings: AdminSettings) -> ssl.SSLContext | None:
    if not settings.certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        key = root / settings.key if settings.key else None
        context.load_cert_chain(root / settings.certificate, key, password="")
    except (OSError, ssl.SSLError, ValueError) as exc:
        raise InvalidRequest(
            f"cannot use admin.certificate {printable(settings.certificate)}: {exc}",
            remedy="set a certificate and its key, in PEM, without a password",
        ) from exc
    return context


def _token(path: Path) -> str:
    """Return the token of a file, which is made if it is missing. Raises PermissionDenied where others may read it."""
    with os_errors.map_os_errors(str(path)), suppress(FileExistsError), osio.durable_file(path, os.O_EXCL) as file:
        file.write(secrets.token_urlsafe(_TOKEN_BYTES).encode() + b"\n")
    with os_errors.map_os_errors(str(path)):
        status = path.stat()
        token = path.read_text(encoding="ascii", errors="replace").strip()
    require_private(path, status)
    if not is_token(token):
        raise InvalidRequest(
            f"invalid token in {printable(str(path))}: need at least {LEAST_TOKEN} printable characters",
            remedy="remove the file; the next start creates a new one",
        )
    return token


def _told_to_end(reload: Callable[[], None]) -> asyncio.Event:
    """Obey signals from now on, as system/signals.py has them; return what SIGTERM and SIGINT set."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def again() -> None:
        service_manager.notify_reloading()
        daemon_log.reopen()
        try:
            reload()
        except Exception as exc:
            log.error("SIGHUP: reload failed: %s", exc)
        else:
            log.info("SIGHUP: settings and credentials were reloaded")
        service_manager.notify_ready()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    loop.add_signal_handler(signal.SIGHUP, again)
    loop.add_signal_handler(signal.SIGUSR1, _log_threads)
    guards.let_through()
    return ended


async def _alive_until(ended: asyncio.Event) -> None:
    """Wait for the end; the service manager gets a sign of life as long as the loop runs."""
    while not ended.is_set():
        service_manager.notify_alive()
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), service_manager.alive_every_s())
    service_manager.notify_stopping()


def _log_threads() -> None:
    from tierfs.base.system.signals import stacks  # imports trio

    log.info("threads:\n%s", "\n".join(stacks()))
