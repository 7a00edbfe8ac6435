"""Manual pages of the programs that mount(8) and umount(8) start: mount.tierfs(8), umount.tierfs(8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tierfs.faces.cli import mount_helper
from tierfs.faces.cli.troff import escaped, items, paragraphs, title
from tierfs.mount import options

_HELPERS = (
    (
        "mount.tierfs",
        "mount a store of tierfs, for mount(8)",
        mount_helper.MOUNT_USAGE,
        """
        mount(8) starts this program for file systems of the type tierfs or fuse.tierfs: in a line of /etc/fstab, in
        mount -t tierfs STORE DIR -o OPTIONS, and in units of systemd. It returns when the mount answers. The mount is
        read-only, nosuid, nodev and noexec, and does the background work of the store. Its log is log/mount.log in the
        directory of the store.

        A store that is mounted at DIR already is no error, so that mount -a may run again. With nofail, a store that
        does not exist is no error.
        """,
        {
            "-o OPTIONS": "Options of the mount, separated by commas.",
            "-s": "Ignore options that tierfs does not know.",
            "-f": "Check the options and the store, and mount nothing.",
            "-n, -v": "Accepted, without an effect.",
        },
    ),
    (
        "umount.tierfs",
        "unmount a store of tierfs, for umount(8)",
        mount_helper.UMOUNT_USAGE,
        """
        umount(8) starts this program to unmount a store. It returns when the process of the mount has exited.
        """,
        {
            "-l": "Detach the mount now; its process exits when the last open file is closed.",
            "-f": "Fail the requests in flight. For root only.",
            "-n, -r, -v": "Accepted, without an effect.",
        },
    ),
)
"""Program, line, usage, description and options; each has a second name, with .fuse in it."""

_OF_OTHERS = (
    "ro rw defaults auto noauto user nofail _netdev x-* ...",
    "Options of mount(8), systemd, autofs and the like are accepted.",
)

_EXAMPLES = (
    "/srv/store  /mnt/logs  fuse.tierfs  _netdev,nofail,allow_other  0  0",
    "mount -t tierfs /srv/store /mnt/logs -o allow_other",
)
_SEE_ALSO = ("tierfs-mount (1),", "tierfs-umount (1),", "mount (8),", "fstab (5)")


def pages() -> Iterator[tuple[str, str]]:
    """Yield the file name and text of each page; that of a second name refers to the first."""
    for name, line, usage, text, letters in _HELPERS:
        yield f"{name}.8", "\n".join(_page(name, line, usage, text, letters)) + "\n"
        yield f"{name.replace('.', '.fuse.')}.8", f".so man8/{name}.8\n"


def _page(name: str, line: str, usage: str, text: str, letters: Mapping[str, str]) -> Iterator[str]:
    yield from (title(name, 8), ".SH NAME", f"{escaped(name)} \\- {escaped(line)}")
    yield from (".SH SYNOPSIS", f".B {escaped(name)}", escaped(usage), ".SH DESCRIPTION", *paragraphs(text))
    yield from (".SH OPTIONS", *items(letters.items()))
    if "OPTIONS" in usage:
        yield from (".SH MOUNT OPTIONS", *items((*options.described(), _OF_OTHERS)))
        yield from (".SH EXAMPLES", ".nf", *map(escaped, _EXAMPLES), ".fi")
    codes = {
        0: "success",
        mount_helper.EXIT_USAGE: "a wrong option, or a missing permission",
        mount_helper.EXIT_BUG: "an internal error",
        mount_helper.EXIT_INTERRUPTED: "interrupted",
        mount_helper.EXIT_FAILURE: "it failed; the error is on standard error",
    }
    yield from (".SH EXIT STATUS", *items((str(code), about) for code, about in codes.items()))
    yield from (".SH SEE ALSO", *(f".BR {escaped(page)}" for page in _SEE_ALSO))
