"""Define tierfs mount, umount, daemon, which does the background work without a mount, and admin, which serves HTTP."""

from __future__ import annotations

from pathlib import Path

import click

from tierfs.base.system import extras, processes
from tierfs.base.system.store_paths import ADMIN_NAME, HOLDER_NAME, MOUNT_NAME
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import ReadPriority
from tierfs.faces.cli.group import command
from tierfs.faces.cli.options import read_priority_option
from tierfs.faces.cli.session import Session
from tierfs.upkeep.holder import lock
from tierfs.upkeep.holder.lock import HeldElsewhere

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
    Options that are meant for other programs, as nofail, _netdev and x-..., are ignored.
    """
    store, point = session.require_store_path().absolute(), mountpoint.absolute()
    all_options = ",".join([*options, *([f"read_priority={read_priority}"] if read_priority else [])])
    if foreground:
        from tierfs.app.mount import mount_foreground

        mount_foreground(store, point, all_options)
        return
    # Here, and not beside what the daemon runs: a command that starts one imports a fifth of that.
    from tierfs.app.store import open_store
    from tierfs.mount import mountpoint as points
    from tierfs.mount.options import parse_options

    any_owner = parse_options(all_options).allow_other_owner
    points.require_usable(point)
    with open_store(store, any_owner=any_owner) as opened:
        paths = opened.paths
    more = ["-o", all_options] if all_options else []
    log = processes.start(["--store", str(paths.root), "mount", str(point), "-f", *more], paths.log, MOUNT_NAME)
    session.done({"mountpoint": str(point), "log": str(log)}, f"mounted at {printable(str(point))}; log: {log}")


@command("umount")
@click.argument("mountpoint", type=_MOUNTPOINT, metavar="[MOUNT]", required=False)
@click.option("-l", "--lazy", is_flag=True, help="Detach it also while files are open, or when it does not answer.")
@click.option("-f", "--force", is_flag=True, hidden=True)
def umount(session: Session, mountpoint: Path | None, lazy: bool, force: bool) -> None:
    """Unmount a store. Fails while files in it are open, unless --lazy.

    MOUNT may be omitted if the store has one mount.
    """
    from tierfs.app.setup.typed import only_mount
    from tierfs.mount.mountpoint import unmount

    mountpoint = mountpoint or only_mount(session.require_store_path(), "umount")
    if force and not lazy:
        raise InvalidRequest("a mount is not forced away", remedy=f"detach it: tierfs umount --lazy {mountpoint}")
    if others := unmount(mountpoint, lazy=lazy):
        session.note(f"it is mounted at {', '.join(map(str, others))} too, where it stays")
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
    from tierfs.app.store import open_store

    with open_store(store) as opened:
        paths = opened.paths
        holder = lock.current(paths.holder)
    if holder is not None:
        raise HeldElsewhere(f"the store is held by {holder}", remedy="leave it to that process, or end it first")
    log = processes.start(["--store", str(paths.root), "daemon", "-f"], paths.log, HOLDER_NAME)
    session.done({"store": str(store), "log": str(log)}, f"at work for {printable(str(store))}; log: {log}")


@command("admin")
@click.option("-f", "--foreground", is_flag=True, help="Stay in the foreground and log to the terminal.")
def admin(session: Session, foreground: bool) -> None:
    """Serve the admin API over HTTP, until SIGTERM: on the Unix socket STORE/admin.sock, for this user and root.

    With the setting admin.listen it serves TCP too, with the token in STORE/admin.token. Returns once it serves; fails
    while another process does. It may run beside a mount or daemon, which carries out its offloads.
    Pulsar's pulsar-admin can ask it for offloads and set their policies.
    """
    extras.require("the admin API", "admin", "starlette", "uvicorn", "anyio")
    store = session.require_store_path().absolute()
    if foreground:
        from tierfs.faces.admin.listen import serve_foreground

        serve_foreground(store)
        return
    from tierfs.app.store import open_store

    with open_store(store) as opened:
        paths = opened.paths
        server = lock.current(paths.admin)
    if server is not None:
        raise HeldElsewhere(f"the admin API is served by {server}", remedy="leave it to that process, or end it first")
    log = processes.start(["--store", str(paths.root), "admin", "-f"], paths.log, ADMIN_NAME)
    data = {"store": str(store), "socket": str(paths.admin_socket), "log": str(log)}
    session.done(data, f"serving {printable(str(paths.admin_socket))}; log: {log}")
