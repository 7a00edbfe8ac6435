"""Define tierfs daemon, which does the background work without a mount."""

from __future__ import annotations

import click

from tierfs.base.system import processes
from tierfs.base.system.store_paths import HOLDER_NAME
from tierfs.base.words.names import printable
from tierfs.faces.cli.group import command
from tierfs.faces.cli.session import Session
from tierfs.upkeep.holder import lock
from tierfs.upkeep.holder.lock import HeldElsewhere


@command("daemon")
@click.option("-f", "--foreground", is_flag=True, help="Stay in the foreground and log to the terminal.")
def daemon(session: Session, foreground: bool) -> None:
    """Run the background work of the store: seal, offload, publish, evict and collect by policy, until SIGTERM.

    A mount does the same while it runs; a daemon is for hosts that only write. Returns when the work has started; fails
    if another process is already the holder of the store.
    """
    store = session.require_store_path().absolute()
    if foreground:
        from tierfs.app.daemon import hold_foreground

        hold_foreground(store)
        return
    from tierfs.app.store import open_store

    with open_store(store) as opened:
        paths = opened.paths
        holder = lock.current(paths.holder)
    if holder is not None:
        raise HeldElsewhere(f"{holder} is already the holder of the store", remedy="use that process, or stop it first")
    log = processes.start(["--store", str(paths.root), "daemon", "-f"], paths.log, HOLDER_NAME)
    session.done(
        {"store": str(store), "log": str(log)}, f"background work started for {printable(str(store))}; log: {log}"
    )
