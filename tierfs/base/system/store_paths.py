"""The places of files in a store's directory, and whom it must belong to."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import PermissionDenied
from tierfs.base.words.names import printable

# Set to 1 or true, it opens stores of other users, in this process and those it starts.
ALLOW_OTHER_OWNER = "TIERFS_ALLOW_OTHER_OWNER"

# Names of the daemons of a store, and of their logs.
MOUNT_NAME, HOLDER_NAME, ADMIN_NAME = "mount", "daemon", "admin"

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_YES = ("1", "true", "yes", "on")


@dataclass(frozen=True, slots=True)
class StorePaths:
    """The files and directories of one store."""

    root: Path

    @property
    def settings(self) -> Path:
        """Settings; written last by init, so it marks a complete store."""
        return self.root / "store.toml"

    @property
    def new_settings(self) -> Path:
        """Settings of a store that is being made."""
        return self.root / "store.toml.new"

    @property
    def metadata(self) -> Path:
        """The LMDB environment."""
        return self.root / "metadata"

    @property
    def chunks(self) -> Path:
        """Local chunk files."""
        return self.root / "chunks"

    @property
    def locks(self) -> Path:
        """Directory of lock files."""
        return self.root / "locks"

    @property
    def writers(self) -> Path:
        """File whose bytes are the writers' locks."""
        return self.locks / "writers"

    @property
    def holder(self) -> Path:
        """Lock and note of the store's holder."""
        return self.locks / "holder"

    @property
    def place_lock(self) -> Path:
        """Lock of the process that changes the cold tier's place."""
        return self.locks / "place"

    def mount(self, device: str) -> Path:
        """Lock and note of the process that serves the mount with a device's number."""
        return self.locks / f"mount-{device}"

    @property
    def budgets(self) -> Path:
        """Spending of users: bytes and requests from the cold tier in the last hour."""
        return self.root / "read-budgets.json"

    @property
    def requests(self) -> Path:
        """Requests to the cold tier, by day."""
        return self.root / "requests.json"

    @property
    def requests_lock(self) -> Path:
        """Lock of the process that writes the requests."""
        return self.locks / "requests"

    @property
    def budgets_lock(self) -> Path:
        """Lock of the process that writes the budgets."""
        return self.locks / "budgets"

    @property
    def standby(self) -> Path:
        """Knowledge of a standby, or an owner that has one, about the other; and the orders of a person."""
        return self.root / "standby.json"

    @property
    def standby_lock(self) -> Path:
        """Lock of the process that writes that file."""
        return self.locks / "standby"

    @property
    def admin(self) -> Path:
        """Lock and note of the process that serves the admin API."""
        return self.locks / "admin"

    @property
    def admin_socket(self) -> Path:
        """Unix socket of the admin API."""
        return self.root / "admin.sock"

    @property
    def ballast(self) -> Path:
        """Room set aside for a full disk."""
        return self.root / "ballast"

    @property
    def cold(self) -> Path:
        """The default cold tier."""
        return self.root / "cold"

    def cache(self, directory: str) -> Path:
        """Return the disk cache; `directory` is the setting read.cache_directory."""
        return self.root / (directory or "cache")

    @property
    def log(self) -> Path:
        """Logs of daemonized mounts."""
        return self.root / "log"


def require_trusted(root: Path, *, any_owner: bool = False) -> None:
    """Raise PermissionDenied for a store that others can write, or that another user owns unless that is asked for.

    Metadata and settings say which files and objects are changed, and where: their owner acts with the rights of the
    user who opens the store.
    """
    for place in (root, StorePaths(root).metadata):
        try:
            mode = place.stat().st_mode
        except OSError:  # the caller opens it, and reports what is wrong
            continue
        if mode & _OTHERS_MAY_WRITE:
            shown = printable(str(place))
            raise PermissionDenied(f"{shown} is writable by other users", remedy=f"chmod 700 {shown}")
        if not any_owner:
            require_own(place)


def require_own(directory: Path) -> None:
    """Raise PermissionDenied for a directory that another user owns, unless the environment allows it."""
    owner, user = directory.stat().st_uid, os.geteuid()
    if owner != user and os.environ.get(ALLOW_OTHER_OWNER, "").lower() not in _YES:
        raise PermissionDenied(
            f"{printable(str(directory))} belongs to {_named(owner)}, not to {_named(user)}: a store's owner decides "
            "what tierfs changes and deletes",
            remedy=f"to trust that owner with your permissions: tierfs --allow-other-owner, or {ALLOW_OTHER_OWNER}=1",
        )


def _named(uid: int) -> str:
    try:
        return f"user {printable(pwd.getpwuid(uid).pw_name)} ({uid})"
    except KeyError:
        return f"user {uid}"
