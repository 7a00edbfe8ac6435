"""tierfs daemon: the background work without a mount."""

from __future__ import annotations

import click

from tierfs.cli.lazy import command
from tierfs.cli.session import Session
from tierfs.names import printable


@command("daemon")
@click.option("-f", "--foreground", is_flag=True, help="Stay in the foreground and log to the terminal.")
def daemon(session: Session, foreground: bool) -> None:
    """Hold the store: end, offload, publish, evict and collect by policy, until SIGTERM.

    A mount does the same while it lasts; a daemon is for hosts that only write. Returns once the store is
    held; refused while another process holds it.
    """
    from tierfs.composition import holding

    store = session.require_store_path().absolute()
    if foreground:
        holding.hold_foreground(store)
        return
    log = holding.hold_background(store)
    session.done({"store": str(store), "log": str(log)}, f"holding {printable(str(store))}; log: {log}")
