"""Mount options as given with `-o`."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import ReadPriority

_FLAGS = ("allow_other", "allow_other_control", "allow_other_owner", "direct_io", "xattr")
_VALUES = ("uid", "gid", "umask", "read_priority")
_ALWAYS = frozenset({"ro", "nosuid", "nodev", "noexec", "noatime"})
_OF_OTHERS = frozenset({"_netdev", "nofail", "noauto", "auto", "user", "users", "defaults"})
_OF_OTHERS_PREFIX = "x-"
_MAX_UMASK = 0o777
# The kernel's largest user or group id; one more means "none".
_MAX_ID = 2**32 - 2


@dataclass(frozen=True, slots=True)
class MountOptions:
    """The options of one mount."""

    uid: int
    gid: int
    umask: int = 0
    allow_other: bool = False
    allow_other_owner: bool = False
    """Opens a store that another user owns, as `--allow-other-owner` does."""
    allow_other_control: bool = False
    """Other users may read `.tierfs` too, which shows what everybody reads."""
    direct_io: bool = False
    """Sealed segments bypass the page cache too: one long scan is a tenth faster, a second one is not cached."""
    xattr: bool = False
    """The kernel may ask for extended attributes, `user.tierfs.*`; it then asks for others of each file too."""
    read_priority: ReadPriority | None = None


def parse_options(text: str) -> MountOptions:
    """Parse a comma-separated list. Raises InvalidRequest naming an unknown or invalid option."""
    options = MountOptions(os.getuid(), os.getgid())
    for item in filter(None, (part.strip() for part in text.split(","))):
        options = _with(options, item)
    return options


def _with(options: MountOptions, item: str) -> MountOptions:
    key, _, value = item.partition("=")
    if item in _ALWAYS or item in _OF_OTHERS or item.startswith(_OF_OTHERS_PREFIX):
        return options
    if item in _FLAGS:
        return replace(options, **{item: True})  # type: ignore[arg-type]
    if item == "rw":
        raise InvalidRequest("a tierfs mount is read-only; option rw is not supported")
    if key not in _VALUES or not value:
        known = ", ".join((*_FLAGS, *(f"{name}=" for name in _VALUES)))
        raise InvalidRequest(f"unknown mount option {item!r}; tierfs knows {known}")
    try:
        if key == "read_priority":
            return replace(options, read_priority=ReadPriority(value))
        number = int(value, 8 if key == "umask" else 10)
        if not 0 <= number <= (_MAX_UMASK if key == "umask" else _MAX_ID):
            raise ValueError(number)
        return replace(options, **{key: number})  # type: ignore[arg-type]
    except ValueError as exc:
        raise InvalidRequest(f"mount option {item!r}: {value!r} is not supported") from exc
