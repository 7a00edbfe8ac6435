"""Mount options as given with `-o`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import ReadPriority
from tierfs.mount import options_of_others

# Each with its line in mount.tierfs(8).
_FLAGS = {
    "allow_other": "Other users may read the mount. Without root, this needs user_allow_other in /etc/fuse.conf.",
    "allow_other_control": "With allow_other, other users may also read .tierfs, which shows all reads.",
    "allow_other_owner": "Open a store that belongs to another user, who can then act with the rights of the mount.",
    "direct_io": "Sealed segments bypass the page cache: one long scan is faster, a second one is not cached.",
    "xattr": "Serve the extended attributes user.tierfs.*; this makes ls -l several times slower.",
}
_VALUES = {
    "uid": "Owner of all files, as a number. Default: the user who mounts.",
    "gid": "Group of all files, as a number. Default: the group of the user who mounts.",
    "umask": "Bits of the modes of all files and directories that are removed, as an octal number. Default: 0.",
    "read_priority": "Tier to read where both have the bytes. Default: the policy of each segment.",
}
_REMOUNT = "remount"
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
    """Parse a comma-separated list. Raises InvalidRequest naming an unknown or invalid option, with what is meant."""
    options = MountOptions(os.getuid(), os.getgid())
    for item in items(text):
        options = _with(options, item)
    return options


def described() -> Iterator[tuple[str, str]]:
    """Yield each option of tierfs, `=` behind one with a value, and what it does."""
    yield from _FLAGS.items()
    yield from ((f"{name}=", text) for name, text in _VALUES.items())


def known(text: str) -> str:
    """Return the list without the options that tierfs does not know, as `mount -s` requests."""
    return ",".join(item for item in items(text) if _is_known(item))


def items(text: str) -> list[str]:
    """Return the options of a comma-separated list."""
    return [part for part in (part.strip() for part in text.split(",")) if part]


def _is_known(item: str) -> bool:
    key, _, value = item.partition("=")
    return options_of_others.is_ignored(item) or item in (*_FLAGS, _REMOUNT) or (key in _VALUES and bool(value))


def _with(options: MountOptions, item: str) -> MountOptions:
    if options_of_others.is_ignored(item):
        return options
    if item in _FLAGS:
        return replace(options, **{item: True})  # type: ignore[arg-type]
    if item == _REMOUNT:
        raise InvalidRequest(
            "the options of a mount cannot be changed while it is mounted",
            remedy="unmount it and mount it again; for settings of the store: tierfs config, then send it SIGHUP",
        )
    if not _is_known(item):
        ours = ", ".join(name for name, _ in described())
        raise InvalidRequest(
            f"unknown mount option {item!r}; tierfs knows {ours}", remedy=options_of_others.remedy_for(item)
        )
    return _with_value(options, item)


def _with_value(options: MountOptions, item: str) -> MountOptions:
    key, _, value = item.partition("=")
    try:
        if key == "read_priority":
            return replace(options, read_priority=ReadPriority(value))
        number = int(value, 8 if key == "umask" else 10)
        if not 0 <= number <= (_MAX_UMASK if key == "umask" else _MAX_ID):
            raise ValueError(number)
        return replace(options, **{key: number})  # type: ignore[arg-type]
    except ValueError as exc:
        raise InvalidRequest(f"mount option {item!r}: {value!r} is not supported") from exc
