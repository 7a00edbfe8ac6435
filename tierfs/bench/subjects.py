"""What is measured, in the words of the table."""

from __future__ import annotations

from collections.abc import Callable

Tell = Callable[[str], None]
"""Takes a line that says what is being done."""

RAW = "raw GETs, 8 x 8 MiB"
"""Plain reads of the files where the cold tier is a directory."""

NULL = "null filesystem"
MOUNT_COLD = "mount, cold tier"
MOUNT_LOCAL = "mount, local tier"
RAW_SMALL = "raw GET of 128 KiB, p50"
MOUNT_RANDOM = "mount, random 4 KiB, p50"
