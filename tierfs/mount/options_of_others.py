"""Mount options of other programs: those that are ignored, and the settings that known ones stand for."""

from __future__ import annotations

from dataclasses import fields

from tierfs.base.options.config import Settings

# Of mount(8) and fstab(5). A mount is always ro, nosuid, nodev and noexec, and has no times to update; the last line is
# for programs that read /etc/fstab. mount(8) adds `rw` to the options that it gives to a helper, so `rw` says nothing.
_WORDS = (
    "ro rw nosuid suid nodev dev noexec exec noatime atime nodiratime diratime relatime norelatime strictatime "
    "nostrictatime lazytime nolazytime sync async dirsync silent loud iversion noiversion mand nomand "
    "defaults auto noauto user nouser users owner group nofail _netdev _rnetdev"
)
_IGNORED = frozenset(_WORDS.split(" "))
# With a value: notes, the users who may mount, and how mount(8) calls its helpers.
_IGNORED_KEYS = frozenset({"comment", "user", "helper", "uhelper", "loop", "fsname", "subtype"})
# Of systemd, autofs and desktops.
_IGNORED_PREFIXES = ("x-", "X-")

_ALWAYS = "not needed: it is always so"
_READ_ONLY = "not needed: a mount is always read-only"
_NO_KEYS = "no keys are stored: see docs/security.md"
_CONFIG = "set it in the store: tierfs config {}=VALUE"

# By names of s3fs, goofys, mountpoint-s3, rclone, JuiceFS, s3ql and libfuse, without `-` and `_`.
SETTINGS = {
    "cache": "read.cache_directory",
    "cachedir": "read.cache_directory",
    "usecache": "read.cache_directory",
    "cachesize": "read.cache_bytes",
    "maxcachesize": "read.cache_bytes",
    "vfscachemode": "read.cache_bytes",
    "vfscachemaxsize": "read.cache_bytes",
    "buffersize": "read.budget_bytes",
    "memorylimit": "read.budget_bytes",
    "maxreadahead": "read.max_window_bytes",
    "prefetch": "read.max_window_bytes",
    "readahead": "read.max_window_bytes",
    "maxreadthreads": "read.streams",
    "parallelcount": "read.streams",
    "transfers": "read.streams",
    "multireqmax": "cold.requests_in_flight",
    "maxthreads": "cold.requests_in_flight",
    "retries": "cold.attempts",
    "connecttimeout": "cold.connect_timeout_s",
    "readwritetimeout": "cold.read_timeout_s",
    "timeout": "read.deadline_s",
    "attrtimeout": "mount.attribute_timeout_s",
    "entrytimeout": "mount.attribute_timeout_s",
    "dircachetime": "mount.attribute_timeout_s",
    "dbglevel": "log.level",
    "debug": "log.level",
    "loglevel": "log.level",
    "bucket": "cold.url",
    "url": "cold.url",
    "endpoint": "cold.endpoint_url",
    "endpointurl": "cold.endpoint_url",
    "region": "cold.region",
    "profile": "cold.profile",
    "usesse": "cold.encryption",
    "userequestpathstyle": "cold.addressing",
    "usepathrequeststyle": "cold.addressing",
}
_REMEDIES = {
    "allowroot": "did you mean allow_other?",
    "autounmount": "not needed: the next tierfs mount, or umount, removes a mount whose process has exited",
    "autocache": _ALWAYS,
    "kernelcache": _ALWAYS,
    "defaultpermissions": _ALWAYS,
    "bigwrites": _READ_ONLY,
    "readonly": _READ_ONLY,
    "dmask": "did you mean umask=?",
    "fmask": "did you mean umask=?",
    "logfile": "the log is in the directory log/ of the store",
    "maxbackground": "not needed: a mount by root raises it",
    "nonempty": "choose an empty directory",
    "passwdfile": _NO_KEYS,
    "store": "specify the store first: tierfs mount STORE DIR",
}
# Rooms of settings that concern a mount, the likeliest first.
_ROOMS = ("read", "cold", "mount", "log", "background", "metrics")


def is_ignored(item: str) -> bool:
    """Return whether an option, with its value, is one for another program, or asks for what a mount does anyway."""
    key, equals, _ = item.partition("=")
    return item in _IGNORED or (bool(equals) and key in _IGNORED_KEYS) or item.startswith(_IGNORED_PREFIXES)


def remedy_for(item: str) -> str | None:
    """Return what to do in place of an option that tierfs does not have, as a line; None if that is not known."""
    key = item.partition("=")[0].lower()
    plain = key.replace("-", "").replace("_", "")
    if plain in _REMEDIES:
        return _REMEDIES[plain]
    name = SETTINGS.get(plain) or _named(key.replace("-", "_"))
    return None if name is None else _CONFIG.format(name)


def _named(key: str) -> str | None:
    """Return the setting of a name, with or without its room."""
    rooms = {room.name: room.default_factory for room in fields(Settings)}
    for room in _ROOMS:
        names = [setting.name for setting in fields(rooms[room])]  # type: ignore[arg-type]
        for name in names:
            if key in (name, f"{room}.{name}", f"{room}_{name}"):
                return f"{room}.{name}"
    return None
