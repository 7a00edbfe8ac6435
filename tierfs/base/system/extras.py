"""Packages that may be missing: those of the extras of setup.py, and what to run then.

A package that tierfs always needs is missing after an upgrade of the source tree alone. It stops only what needs it.

tierfs is on no package index, where `tierfs[spark]` is a name that anybody may take: a remedy names the packages of an
extra themselves, with the bounds that this installation was built with.
"""

from __future__ import annotations

import errno
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tierfs.base.words.errors import InvalidRequest

_DISTRIBUTION = "tierfs"
_OWN = "tierfs"
_SETUP = Path(__file__).parents[3] / "setup.py"


class MissingPackage(InvalidRequest, ModuleNotFoundError):
    """A package is not installed. Programs may catch it as the ImportError it is."""

    errno = errno.EIO  # in a mount: nothing about the read is wrong, and the log of the mount names the package

    def __str__(self) -> str:
        """Return the message; ImportError's own looks for other arguments."""
        return str(self.args[0])


@contextmanager
def needed_by(what: str, extra: str | None = None) -> Iterator[None]:
    """Turn an import that fails for a package of `extra` into MissingPackage, with the remedy.

    Without an extra the package is one that tierfs always needs.
    """
    try:
        yield
    except ModuleNotFoundError as exc:
        package = (exc.name or _OWN).partition(".")[0]
        if package == _OWN:
            raise  # a fault of ours
        raise missing(what, extra, package) from exc


def require(what: str, extra: str, *packages: str) -> None:
    """Raise MissingPackage for the first of these packages that is not installed. Imports none of them."""
    from importlib.util import find_spec

    for package in packages:
        if find_spec(package) is None:
            raise missing(what, extra, package)


def missing(what: str, extra: str | None, package: str) -> MissingPackage:
    """Return the error of `what` without a package of `extra`, or one that tierfs always needs."""
    text = f"{what} needs the package {package}, which is not installed"
    error = MissingPackage(text, remedy=install(extra, package))
    error.name = package
    error.add_note(f"install it: {error.remedy}")  # for programs, whose traceback has no remedy
    return error


def install(extra: str | None, package: str = "") -> str:
    """Return the command that installs into this Python what an extra needs, or without an extra only `package`."""
    from importlib import metadata  # 30 ms, which only a failure pays

    try:
        lines = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        lines = []  # the source tree alone
    if extra is None:
        own = re.compile(rf"{re.escape(package)}(?![A-Za-z0-9._-])[^;]*")
        source = f"{_SETUP.parent}" if _SETUP.exists() else "tierfs-VERSION.whl"
    else:
        own = re.compile(rf"""[^;]+;\s*extra == ["']{re.escape(extra)}["']""")
        source = f"{_SETUP.parent}[{extra}]" if _SETUP.exists() else f"tierfs-VERSION.whl[{extra}]"
    packages = [match[0].partition(";")[0].strip() for line in lines if (match := own.fullmatch(line))]
    return shlex.join([sys.executable, "-m", "pip", "install", *(packages or [source])])
