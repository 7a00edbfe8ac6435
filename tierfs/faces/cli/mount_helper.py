"""The programs that mount(8) and umount(8) start: `mount.tierfs STORE DIR -o OPTIONS`, `umount.tierfs DIR`.

They take the words of those two, and exit with their codes. mount.fuse3(8) starts the command itself with a store and a
directory, which is the first one. A store that is mounted there already is no error: the table of mounts has another
source than /etc/fstab, so that `mount -a` starts the program again.
"""

from __future__ import annotations

import getopt
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tierfs.base.words.errors import InvalidRequest
from tierfs.faces.cli import errors, standard_streams
from tierfs.faces.cli.session import Session

# Of mount(8): incorrect invocation or permissions; interrupt by the user; mount failure. 4 is an internal bug.
EXIT_USAGE, EXIT_BUG, EXIT_INTERRUPTED, EXIT_FAILURE = 1, 4, 8, 32

# From the exit codes of commands: invalid request, permission denied; others are failures.
_CODES = {
    2: EXIT_USAGE,
    4: EXIT_USAGE,
    errors.EXIT_INTERNAL: EXIT_BUG,
    errors.EXIT_INTERRUPTED: EXIT_INTERRUPTED,
}

# Of external helpers, see mount(8) and umount(8); -n, -v, -N and -t change nothing here.
_MOUNT_OPTIONS, _UMOUNT_OPTIONS = "sfnvN:o:t:", "flnrvN:t:"
MOUNT_USAGE, UMOUNT_USAGE = "STORE DIR [-sfnv] [-o OPTIONS]", "DIR [-flnrv]"
_NOFAIL = "nofail"


def mount() -> None:
    """Run the program that mount(8) starts: return once the mount serves, or exit with a code of mount(8)."""
    _run(_mount, sys.argv[1:])


def umount() -> None:
    """Run the program that umount(8) starts: return once the process of the mount has ended, or exit with its code."""
    _run(_umount, sys.argv[1:])


def _run(program: Callable[[Sequence[str]], None], words: Sequence[str]) -> None:
    standard_streams.complete()
    session = Session(words=words)
    session.start_logging()
    try:
        program(words)
    except (Exception, KeyboardInterrupt) as exc:
        failure = errors.describe(exc)
        code = _CODES.get(failure.exit_code, EXIT_FAILURE)
        errors.show(replace(failure, exit_code=code), session)
        sys.exit(code)


def _mount(words: Sequence[str]) -> None:
    flags, (source, directory) = _parsed(words, _MOUNT_OPTIONS, MOUNT_USAGE, 2)
    from tierfs.app import mount_start
    from tierfs.mount import options

    chosen = ",".join(value for flag, value in flags if flag == "-o")
    if ("-s", "") in flags:
        chosen = options.known(chosen)
    store, mountpoint = mount_start.store_of_source(source), Path(directory).absolute()
    options.parse_options(chosen)
    if ("-f", "") in flags or mount_start.is_mounted(store, mountpoint):
        return
    if _NOFAIL in options.items(chosen) and not store.exists():
        return
    mount_start.start_mount(store, mountpoint, chosen)


def _umount(words: Sequence[str]) -> None:
    flags, (directory,) = _parsed(words, _UMOUNT_OPTIONS, UMOUNT_USAGE, 1)
    from tierfs.mount.mountpoint import unmount

    names = {flag for flag, _ in flags}
    unmount(Path(directory).absolute(), lazy="-l" in names, force="-f" in names)


def _parsed(words: Sequence[str], letters: str, usage: str, count: int) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the options and the places. Raises InvalidRequest for other words."""
    try:
        flags, places = getopt.gnu_getopt(list(words), letters)
    except getopt.GetoptError as exc:
        raise InvalidRequest(str(exc), remedy=f"usage: {usage}") from exc
    if len(places) != count:
        raise InvalidRequest(f"not {count} but {len(places)} places are given", remedy=f"usage: {usage}")
    return flags, places
