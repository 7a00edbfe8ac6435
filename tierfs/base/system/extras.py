"""Packages that are not installed with tierfs: the extras of setup.py, and what to run where one is missing.

tierfs is on no package index, where `tierfs[spark]` is a name that anybody may take: a remedy names the packages of an
extra themselves, with the bounds that this installation was built with.
"""

from __future__ import annotations

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
    """A package of an extra is not installed. Programs may catch it as the ImportError it is."""

    def __str__(self) -> str:
        """Return the message; ImportError's own looks for other arguments."""
        return str(self.args[0])


@contextmanager
def needed_by(what: str, extra: str) -> Iterator[None]:
    """Turn an import that fails for a package of `extra` into MissingPackage, with the remedy."""
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


def missing(what: str, extra: str, package: str) -> MissingPackage:
    """Return the error of `what` without one of the packages of `extra`."""
    error = MissingPackage(f"{what} needs the package {package}, which is not installed", remedy=install(extra))
    error.name = package
    error.add_note(f"install it: {error.remedy}")  # for programs, whose traceback has no remedy
    return error


def install(extra: str) -> str:
    """Return the command that installs what an extra needs into this Python."""
    from importlib import metadata  # 30 ms, which only a failure pays

    try:
        lines = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        lines = []  # the source tree alone
    of_extra = re.compile(rf"""(?P<package>[^;]+);\s*extra == ["']{re.escape(extra)}["']""")
    packages = [match["package"].strip() for line in lines if (match := of_extra.fullmatch(line))]
    wanted = packages or [f"{_SETUP.parent}[{extra}]" if _SETUP.exists() else f"tierfs-VERSION.whl[{extra}]"]
    return shlex.join([sys.executable, "-m", "pip", "install", *wanted])
