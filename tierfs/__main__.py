"""The command `tierfs`, also as `python -m tierfs`, and the programs that mount(8) and umount(8) start."""

import os
import sys
from contextlib import suppress

from tierfs import __version__

# What this program is called where it was started as one, and not by a function of another.
_OWN_NAMES = ("tierfs", "__main__.py", "mount.tierfs", "mount.fuse.tierfs", "umount.tierfs", "umount.fuse.tierfs")
_UTF8 = "utf-8"
_SERVICES = ("mount", "daemon", "admin")
_VERSION = (["--version"], ["-V"], ["version"])


def main() -> None:
    """Run the command line and exit."""
    if _is_of_mount_fuse(sys.argv[1:]):
        mount_helper()
        return
    _use_utf8()
    # Scripts ask for the version often, and click takes 50 of the 70 ms (measured). Where the output fails, the
    # command line tells why.
    if sys.argv[1:] in _VERSION and sys.stdout is not None:
        with suppress(OSError):
            print(f"tierfs, version {__version__}", flush=True)
            return
    if _serves(sys.argv[1:]):
        from tierfs.base.system import guards

        guards.hold_back()  # the command line takes a third of a second, in which SIGHUP would end the process
    from tierfs.faces.cli.main import main

    main()


def mount_helper() -> None:
    """Run mount.tierfs and exit."""
    _use_utf8()
    from tierfs.faces.cli.mount_helper import mount

    mount()


def umount_helper() -> None:
    """Run umount.tierfs and exit."""
    _use_utf8()
    from tierfs.faces.cli.mount_helper import umount

    umount()


def _use_utf8() -> None:
    """Take names of files and words as UTF-8, whatever the locale is: start again in Python's UTF-8 mode (PEP 540).

    In ISO-8859-1 and the like the same bytes of a name would be other text, and so another segment. Output that has
    another encoding nevertheless, as PYTHONIOENCODING asks for, gets escapes in place of what it cannot hold.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and stream.encoding.lower() != _UTF8:
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if sys.getfilesystemencoding() == _UTF8 or os.path.basename(sys.argv[0]) not in _OWN_NAMES:
        return
    from tierfs.base.system import processes

    processes.start_again_in_utf8()


def _is_of_mount_fuse(words: list[str]) -> bool:
    """Return whether mount.fuse3(8) started this program: it has no command, but a store and a directory."""
    places = words[:2]
    return len(places) == 2 and all(word.startswith("/") for word in places)


def _serves(words: list[str]) -> bool:
    """Return whether the first word that is no option names a service, and it stays in the foreground."""
    rest = iter(words)
    verb = ""
    for word in rest:
        if word == "--store":
            next(rest, None)
        elif not word.startswith("-"):
            verb = word
            break
    return verb in _SERVICES and any(
        word == "--foreground" or (word[:1] == "-" != word[1:2] and "f" in word) for word in rest
    )


if __name__ == "__main__":
    main()
