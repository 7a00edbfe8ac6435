"""tierfs mount, umount."""

from __future__ import annotations

from pathlib import Path

import click

from tierfs.cli.context import Context, pass_context
from tierfs.cli.output import emit


@click.command("mount")
@click.argument("mountpoint", type=click.Path(path_type=Path))
@click.option("-f", "--foreground", is_flag=True, help="Stay in the foreground.")
@click.option("-o", "options", default="", help="allow_other, direct_io, uid=, gid=, umask=, read_priority=")
@pass_context
def mount_command(context: Context, mountpoint: Path, foreground: bool, options: str) -> None:
    """Mount the store at MOUNTPOINT. Returns once the mount answers."""
    from tierfs import mounting

    point = mountpoint.absolute()
    if foreground:
        mounting.mount_foreground(context.store_path(), point, options)
        return
    log = mounting.mount_background(context.store_path(), point, options)
    if context.as_json:
        emit({"mountpoint": str(point), "log": str(log)})
    elif not context.quiet:
        print(f"mounted at {point}; log: {log}")


@click.command("umount")
@click.argument("mountpoint", type=click.Path(path_type=Path))
@pass_context
def umount_command(context: Context, mountpoint: Path) -> None:
    """Take a mount down."""
    from tierfs.fuse.mountpoint import unmount

    unmount(mountpoint)
    if context.as_json:
        emit({"mountpoint": str(mountpoint.absolute())})
