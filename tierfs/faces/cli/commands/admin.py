"""Define tierfs admin, which serves HTTP."""

from __future__ import annotations

import click

from tierfs.base.system import extras, processes
from tierfs.base.system.store_paths import ADMIN_NAME
from tierfs.base.words.names import printable
from tierfs.faces.cli.group import command
from tierfs.faces.cli.session import Session
from tierfs.upkeep.holder import lock
from tierfs.upkeep.holder.lock import HeldElsewhere


@command("admin")
@click.option("-f", "--foreground", is_flag=True, help="Stay in the foreground and log to the terminal.")
def admin(session: Session, foreground: bool) -> None:
    """Serve the admin API over HTTP, until SIGTERM: on the Unix socket STORE/admin.sock, for this user and root.

    With the setting admin.listen it also serves TCP, with the token in STORE/admin.token, and there a dashboard for
    browsers at /. Hosts that only send their logs have tokens of their own (admin.senders). Returns when the server
    is ready; fails if another process serves the store. A mount or daemon that runs at the same time carries out
    its offloads. Pulsar's pulsar-admin can start offloads and set their policies.
    """
    extras.require("the admin API", "admin", "starlette", "uvicorn", "anyio")
    store = session.require_store_path().absolute()
    if foreground:
        from tierfs.faces.admin.listen import serve_foreground

        serve_foreground(store)
        return
    from tierfs.app.store import open_store

    with open_store(store) as opened:
        paths, settings = opened.paths, opened.settings.admin
        server = lock.current(paths.admin)
    if server is not None:
        raise HeldElsewhere(f"{server} already serves the admin API", remedy="use that process, or stop it first")
    log = processes.start(["--store", str(paths.root), "admin", "-f"], paths.log, ADMIN_NAME)
    url = f"http{'s' if settings.certificate else ''}://{settings.listen}/" if settings.listen else None
    data = {"store": str(store), "socket": str(paths.admin_socket), "url": url, "log": str(log)}
    places = [str(paths.admin_socket), *([f"{url} (also for browsers)"] if url else [])]
    session.done(data, f"serving {printable(' and '.join(places))}; log: {log}")
