"""Where and with what was measured, as the report says it."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.measuring import GIB
from tests.benchmarks.reading.peers import Peer
from tierfs import __version__

_KIB = 1024


class TooLittleMemory(Exception):
    """The server would be ended by the kernel in the middle of a run."""


def require_memory(needed_bytes: int) -> None:
    """Raise TooLittleMemory unless so much is available."""
    available = _available_bytes()
    if available < needed_bytes:
        raise TooLittleMemory(
            f"the server keeps everything in memory and needs {needed_bytes / GIB:.0f} GiB of it, "
            f"{available / GIB:.0f} GiB are free: give a smaller --size, or --questions apart"
        )


def machine() -> dict[str, str]:
    """What speed depends on."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": _processor(),
        "memory": f"{pages / GIB:.0f} GiB",
        "kernel": platform.release(),
    }


def programs(peers: Sequence[Peer]) -> dict[str, str]:
    """Versions of what was measured and of what it was measured with."""
    found = {"tierfs": __version__, "Python": platform.python_version(), "S3 server": _ceph()}
    return found | {peer.label: peer.version() for peer in peers}


def _available_bytes() -> int:
    """Free memory, and what the kernel gives back when it is asked for."""
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * _KIB


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _ceph() -> str:
    done = subprocess.run(["radosgw", "--version"], capture_output=True, text=True, check=True)
    return "Ceph RGW " + done.stdout.split()[2]
