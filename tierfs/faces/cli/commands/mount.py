"""Define tierfs mount and umount."""

from __future__ import annotations

from pathlib import Path

import click

from tierfs.base.system import processes
from tierfs.base.system.store_paths import MOUNT_NAME
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import ReadPriority
from tierfs.faces.cli.group import command
from tierfs.faces.cli.options import read_priority_option
from tierfs.faces.cli.session import Session

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
    Options for other programs, such as nofail, _netdev and x-..., are ignored.
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
@click.option("-l", "--lazy", is_flag=True, help="Detach it even if files are open or it does not respond.")
@click.option("-f", "--force", is_flag=True, hidden=True)
def umount(session: Session, mountpoint: Path | None, lazy: bool, force: bool) -> None:
    """Unmount a store. Fails while files in it are open, unless --lazy.

    MOUNT may be omitted if the store has one mount.
    """
    from tierfs.app.setup.typed import only_mount
    from tierfs.mount.mountpoint import unmount

    mountpoint = mountpoint or only_mount(session.require_store_path(), "umount")
    if force and not lazy:
        raise InvalidRequest("umount has no --force", remedy=f"detach it: tierfs umount --lazy {mountpoint}")
    if others := unmount(mountpoint, lazy=lazy):
        session.note(f"it is still mounted at {', '.join(map(str, others))}")
    session.done({"mountpoint": str(mountpoint), "mounted": False}, f"unmounted {printable(str(mountpoint))}")
