"""Define tierfs mount, umount, and daemon, which does the background work without a mount."""

from __future__ import annotations

from pathlib import Path

import click

from tierfs.cli.group import command
from tierfs.cli.options import read_priority_option
from tierfs.cli.session import Session
from tierfs.names import printable
from tierfs.types import ReadPriority

_MOUNTPOINT = click.Path(path_type=Path)


@command("mount")
@click.argument("mountpoint", type=_MOUNTPOINT)
@click.option("-f", "--foreground", is_flag=True, help="Stay in the foreground and log to the terminal.")
@click.option("-o", "options", metavar="OPTIONS", multiple=True, help="Mount options, separated by commas.")
@read_priority_option
def mount(
    session: Session, mountpoint: Path, foreground: bool, options: tuple[str, ...], read_priority: ReadPriority | None
) -> None:
    """Mount the store as a read-only directory; return when it is ready.

    Options: allow_other, allow_other_control, allow_other_owner, direct_io, xattr, uid=, gid=, umask=, read_priority=.
    Options of /etc/fstab that are meant for other programs are ignored.
    """
    store, point = session.require_store_path().absolute(), mountpoint.absolute()
    all_options = ",".join([*options, *([f"read_priority={read_priority}"] if read_priority else [])])
    if foreground:
        from tierfs.app.mount import mount_foreground

        mount_foreground(store, point, all_options)
        return
    from tierfs.app.daemons import mount_background

    log = mount_background(store, point, all_options)
    session.done({"mountpoint": str(point), "log": str(log)}, f"mounted at {printable(str(point))}; log: {log}")


@command("umount")
@click.argument("mountpoint", type=_MOUNTPOINT)
def umount(session: Session, mountpoint: Path) -> None:
    """Unmount a store. Fails while files in it are open."""
    from tierfs.fuse.mountpoint import unmount

    unmount(mountpoint)
    session.done({"mountpoint": str(mountpoint), "mounted": False}, f"unmounted {printable(str(mountpoint))}")


@command("daemon")
@click.option("-f", "--foreground", is_flag=True, help="Stay in the foreground and log to the terminal.")
def daemon(session: Session, foreground: bool) -> None:
    """Hold the store: seal, offload, publish, evict and collect by policy, until SIGTERM.

    A mount does the same while it lasts; a daemon is for hosts that only write. Returns once the store is
    held; fails while another process holds it.
    """
    store = session.require_store_path().absolute()
    if foreground:
        from tierfs.app.mount import hold_foreground

        hold_foreground(store)
        return
    from tierfs.app.daemons import hold_background

    log = hold_background(store)
    session.done({"store": str(store), "log": str(log)}, f"holding {printable(str(store))}; log: {log}")
