"""Define tierfs mount and umount."""

from __future__ import annotations

from pathlib import Path

import click

from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import ReadPriority
from tierfs.faces.cli.group import command
from tierfs.faces.cli.options import read_priority_option
from tierfs.faces.cli.session import Session

_MOUNTPOINT = click.Path(path_type=Path)
_MOST_PLACES = 2


def _store_and_mountpoint(
    ctx: click.Context, param: click.Parameter, places: tuple[str, ...]
) -> tuple[str | None, Path]:
    """Return the store, if it is one of the words, and the mount point."""
    if len(places) > _MOST_PLACES:
        raise click.UsageError(f"got unexpected extra argument ({places[_MOST_PLACES]})", ctx)
    *store, mountpoint = places
    return (store[0] if store else None), Path(mountpoint).absolute()


@command("mount")
@click.argument("places", nargs=-1, required=True, metavar="[STORE] MOUNTPOINT", callback=_store_and_mountpoint)
@click.option("-f", "--foreground", is_flag=True, help="Stay in the foreground and log to the terminal.")
@click.option("-o", "options", metavar="OPTIONS", multiple=True, help="Mount options, separated by commas.")
@read_priority_option
def mount(
    session: Session,
    places: tuple[str | None, Path],
    foreground: bool,
    options: tuple[str, ...],
    read_priority: ReadPriority | None,
) -> None:
    """Mount the store as a read-only directory; return when it is ready.

    STORE may be given by --store or TIERFS_STORE instead.

    Options: allow_other, allow_other_control, allow_other_owner, direct_io, xattr, uid=, gid=, umask=, read_priority=.
    Options of mount(8) and other programs, such as rw, nofail, _netdev and x-..., are ignored.
    """
    source, point = places
    if source is not None and session.names_store:
        raise click.UsageError("the store is given twice: as --store and as STORE")
    all_options = ",".join([*options, *([f"read_priority={read_priority}"] if read_priority else [])])
    if foreground:
        from tierfs.app.mount import mount_foreground

        mount_foreground(_store(session, source), point, all_options)
        return
    from tierfs.app.mount_start import start_mount

    log = start_mount(_store(session, source), point, all_options)
    session.done({"mountpoint": str(point), "log": str(log)}, f"mounted at {printable(str(point))}; log: {log}")


def _store(session: Session, source: str | None) -> Path:
    if source is None:
        return session.require_store_path().absolute()
    from tierfs.app.mount_start import store_of_source

    return store_of_source(source)


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
