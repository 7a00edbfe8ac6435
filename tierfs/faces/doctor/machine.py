"""Checks of the machine: kernel, memory and limits for a mount, and the library of compressed objects."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tierfs.base.options.config import Settings
from tierfs.base.options.memory import PROCESS_BYTES, SMALLEST_BUDGET_BYTES, budget_within
from tierfs.base.system import extras, memory_limit
from tierfs.base.system.memory_limit import MemoryLimit
from tierfs.base.words.types import MIB
from tierfs.faces.doctor.findings import DoctorFinding, fail, mebibytes, ok, warn
from tierfs.mount.mountpoint import ALLOW_OTHER, FUSE_CONFIGURATION, FUSE_DEVICE, FUSERMOUNT, others_allowed

# From this kernel on a FUSE request carries 1 MiB instead of 128 KiB.
_LARGE_REQUESTS = (4, 20)

# Files that a mount opens beside those that settings count: metadata, locks, logs, /dev/fuse, threads' pipes (a guess
# well above the numbers observed).
_OTHER_FILES = 64

# As setup.py asks for; an upgrade of the source tree alone does not install it.
_ZSTANDARD = "zstandard"
_MIN_ZSTANDARD = (0, 25)

_MEMORY_FILE = Path("/proc/meminfo")
_KIB = 1024


def check_machine(settings: Settings) -> Iterator[DoctorFinding]:
    """Yield every check that needs no store."""
    yield fuse_device(FUSE_DEVICE)
    root = os.geteuid() == 0
    yield fusermount(shutil.which(FUSERMOUNT), root=root)
    yield allow_other(root=root, allowed=others_allowed())
    yield kernel(os.uname().release)
    yield open_files(*resource.getrlimit(resource.RLIMIT_NOFILE), settings)
    limit = memory_limit.find()
    yield memory(available_bytes(limit), settings.read.budget_bytes, limit)
    yield zstandard(_installed(_ZSTANDARD))


def fuse_device(device: Path) -> DoctorFinding:
    """Check whether this user can open the kernel's side of FUSE."""
    name = "fuse device"
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return fail(name, f"{device} is missing; mounts are not possible", "as root: modprobe fuse")
    except PermissionError as exc:
        if exc.errno == errno.EPERM:  # the modes allow it, the container's device rules do not
            return fail(
                name, f"this container has no access to {device}", "docker run --device /dev/fuse --cap-add SYS_ADMIN"
            )
        return fail(name, f"this user has no access to {device}", f"as root: chmod 666 {device}")
    except OSError as exc:
        return fail(name, f"{device}: {exc.strerror}", "as root: modprobe fuse")
    return ok(name, f"{device} can be opened")


def fusermount(path: str | None, *, root: bool) -> DoctorFinding:
    """Check whether users other than root can mount; `path` is the place of the program."""
    name = FUSERMOUNT
    if path is not None:
        return ok(name, path)
    if root:
        return ok(name, "missing; root does not need it")
    return fail(name, "missing; only root can mount", "as root: apt-get install fuse3")


def allow_other(*, root: bool, allowed: bool) -> DoctorFinding:
    """Check whether this user may make a mount that others can read."""
    name = ALLOW_OTHER
    if root:
        return ok(name, "root needs no permission to mount for others")
    if allowed:
        return ok(name, f"set in {FUSE_CONFIGURATION}")
    return warn(
        name,
        f"not set in {FUSE_CONFIGURATION}: only you can read your mounts",
        f"as root: echo {ALLOW_OTHER} >> {FUSE_CONFIGURATION}",
    )


def kernel(release: str) -> DoctorFinding:
    """Check whether the kernel takes large FUSE requests."""
    match = re.match(r"([0-9]+)\.([0-9]+)", release)
    if match is not None and (int(match[1]), int(match[2])) >= _LARGE_REQUESTS:
        return ok("kernel", f"Linux {release}")
    wanted = ".".join(map(str, _LARGE_REQUESTS))
    return warn(
        "kernel",
        f"Linux {release}: before {wanted}, requests of a mount are limited to 128 KiB, so reads are slower",
        f"boot a kernel of version {wanted} or newer",
    )


def open_files(soft: int, hard: int, settings: Settings) -> DoctorFinding:
    """Check whether the limit of open files has room for all that the settings allow."""
    name = "open files"
    needed = settings.read.open_files + settings.write.open_chunks + settings.cold.connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        limit = "no limit" if soft == resource.RLIM_INFINITY else f"limit {soft:,}"
        return ok(name, f"{limit}; the settings need up to {needed:,}")
    reachable = hard == resource.RLIM_INFINITY or hard >= needed
    return warn(
        name,
        f"limit {soft:,}, but the settings need up to {needed:,}: opening a file may fail",
        f"ulimit -n {needed}" if reachable else f"as root: echo '* - nofile {needed}' >> /etc/security/limits.conf",
    )


def memory(free_bytes: int, budget_bytes: int, limit: MemoryLimit | None = None) -> DoctorFinding:
    """Check whether a mount can use its budget for fetched bytes; `limit` is the one that it is started under."""
    name = "memory"
    used_bytes = budget_bytes
    text = f"{mebibytes(free_bytes)} available, read.budget_bytes is {mebibytes(budget_bytes)}"
    if limit is not None:
        used_bytes = min(budget_bytes, budget_within(limit.limit_bytes))
        text = f"{mebibytes(free_bytes)} available of {mebibytes(limit.limit_bytes)}, the limit of {limit.group}"
        text += f"; a mount uses up to {mebibytes(used_bytes)} for fetched bytes"
    if free_bytes >= used_bytes + PROCESS_BYTES:
        return ok(name, text)
    smaller = max(SMALLEST_BUDGET_BYTES, (free_bytes - PROCESS_BYTES) // 2)
    return warn(
        name,
        f"{text}, and a mount needs another {mebibytes(PROCESS_BYTES)}",
        f"export TIERFS_READ__BUDGET_BYTES={smaller // MIB}MiB",
    )


def zstandard(installed: str | None) -> DoctorFinding:
    """Check whether the library of compressed objects is there and new enough, from its version."""
    remedy, wanted = extras.install(None, _ZSTANDARD), ".".join(map(str, _MIN_ZSTANDARD))
    if installed is None:
        return fail(_ZSTANDARD, "missing: compressed objects can be neither written nor read", remedy)
    parts = re.match(r"([0-9]+)\.([0-9]+)", installed)
    if parts is None or (int(parts[1]), int(parts[2])) < _MIN_ZSTANDARD:
        return fail(_ZSTANDARD, f"zstandard {installed}; tierfs needs {wanted} or newer", remedy)
    return ok(_ZSTANDARD, f"zstandard {installed}")


def _installed(package: str) -> str | None:
    """Return the version of a package, None without it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def available_bytes(limit: MemoryLimit | None, memory_file: Path = _MEMORY_FILE) -> int:
    """Return the memory that a new process may use: the kernel's estimate, and no more than its limit leaves."""
    match = re.search(r"^MemAvailable:\s+([0-9]+) kB$", memory_file.read_text(), re.MULTILINE)
    machine = int(match[1]) * _KIB if match is not None else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return machine if limit is None else min(machine, limit.available_bytes)
