"""Checks of the machine: kernel, memory and limits for a mount."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

from tierfs.base.options.config import Settings
from tierfs.base.words.types import MIB
from tierfs.faces.doctor.findings import DoctorFinding, fail, mebibytes, ok, warn
from tierfs.mount.mountpoint import ALLOW_OTHER, FUSE_CONFIGURATION, FUSE_DEVICE, FUSERMOUNT, others_allowed

# From this kernel on a FUSE request carries 1 MiB instead of 128 KiB.
_LARGE_REQUESTS = (4, 20)

# Files that a mount opens beside those that settings count: metadata, locks, logs, /dev/fuse, threads' pipes (a guess
# well above the numbers observed).
_OTHER_FILES = 64

# Memory of a mount beside its budget for fetched bytes (measured: 60 to 110 MiB).
_PROCESS_BYTES = 128 * MIB

# No smaller budget is proposed: two fetches of 8 MiB.
_SMALLEST_BUDGET_BYTES = 16 * MIB

_MEMORY_FILE = Path("/proc/meminfo")
_CONTROL_GROUP = Path("/sys/fs/cgroup")
_KIB = 1024


def check_machine(settings: Settings) -> Iterator[DoctorFinding]:
    """Yield every check that needs no store."""
    yield fuse_device(FUSE_DEVICE)
    root = os.geteuid() == 0
    yield fusermount(shutil.which(FUSERMOUNT), root=root)
    yield allow_other(root=root, allowed=others_allowed())
    yield kernel(os.uname().release)
    yield open_files(*resource.getrlimit(resource.RLIMIT_NOFILE), settings)
    yield memory(available_bytes(), settings.read.budget_bytes)


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


def memory(free_bytes: int, budget_bytes: int) -> DoctorFinding:
    """Check whether a mount can use its budget for fetched bytes without the machine running out of memory."""
    name = "memory"
    text = f"{mebibytes(free_bytes)} available, read.budget_bytes is {mebibytes(budget_bytes)}"
    if free_bytes >= budget_bytes + _PROCESS_BYTES:
        return ok(name, text)
    smaller = max(_SMALLEST_BUDGET_BYTES, (free_bytes - _PROCESS_BYTES) // 2)
    return warn(
        name,
        f"{text}, and a mount needs another {mebibytes(_PROCESS_BYTES)}",
        f"export TIERFS_READ__BUDGET_BYTES={smaller // MIB}MiB",
    )


def available_bytes(memory_file: Path = _MEMORY_FILE, control_group: Path = _CONTROL_GROUP) -> int:
    """Return the memory a new process may use: the kernel's estimate, and no more than a container's limit leaves."""
    match = re.search(r"^MemAvailable:\s+([0-9]+) kB$", memory_file.read_text(), re.MULTILINE)
    machine = int(match[1]) * _KIB if match is not None else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit, used = ((control_group / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return machine  # no control group of version 2, or the root's, which has no limit
    return machine if limit == "max" else min(machine, max(0, int(limit) - int(used)))
