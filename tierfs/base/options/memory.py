"""Fit the settings that take memory into the limit of this process. Pure.

Without a limit, and with one that has room, settings are what they were.
"""

from __future__ import annotations

from dataclasses import replace

from tierfs.base.options.config import ColdSettings, ReadSettings
from tierfs.base.words.types import MIB

# Memory of a mount beside its budget for fetched bytes (measured: 60 to 110 MiB).
PROCESS_BYTES = 128 * MIB

# No smaller budget is proposed or set: two fetches of 8 MiB.
SMALLEST_BUDGET_BYTES = 16 * MIB

# Shares of what a process leaves. The rest is for what the kernel counts for the group: pages of requests in flight,
# buffers of connections, metadata; and for the readers, where they are in it. A half was too much (measured): with 64
# threads of Python that read in a group of 256 MiB, it was full of 117 MiB of the mount, 86 of the readers, and 54 that
# the kernel was filling.
_READ_SHARE = 3
_UPLOAD_SHARE = 4

# Memory of one part of an upload.
_PART_BYTES = 8 * MIB


def budget_within(limit_bytes: int) -> int:
    """Return the largest budget for fetched bytes of a process with this much memory."""
    return max(SMALLEST_BUDGET_BYTES, (limit_bytes - PROCESS_BYTES) // _READ_SHARE)


def fit_reads(settings: ReadSettings, limit_bytes: int) -> ReadSettings:
    """Return the settings with a budget that fits."""
    return replace(settings, budget_bytes=min(settings.budget_bytes, budget_within(limit_bytes)))


def fit_uploads(settings: ColdSettings, limit_bytes: int) -> ColdSettings:
    """Return the settings with as many parts in flight as fit, at least one."""
    parts = max(1, (limit_bytes - PROCESS_BYTES) // _UPLOAD_SHARE // _PART_BYTES)
    return replace(settings, parts_in_parallel=min(settings.parts_in_parallel, parts))
