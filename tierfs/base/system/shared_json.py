"""Small JSON files that the processes of a store add to: each reads, changes and replaces the file under a lock.

The file is complete at any time, and not synced: a power failure may take the last change back.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from tierfs.base.system import osio
from tierfs.base.system.locks import LockFile

# Longest wait for other processes that write the file; each needs a millisecond (a guess).
_LOCK_S = 1.0


def read(path: Path) -> Any:
    """Return the content; None for a missing file. Raises OSError, and ValueError for one that is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def update(path: Path, lock_path: Path, change: Callable[[], Any]) -> None:
    """Replace the file by what `change` returns, which may read it. Raises OSError, and what `change` raises."""
    with closing(LockFile(lock_path)) as lock:
        if not lock.lock_within(_LOCK_S):
            raise TimeoutError(f"{lock_path} is locked")
        text = json.dumps(change())
        new = path.with_name(f"{path.name}.new")
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, osio.OWNER_FILE)
        try:
            osio.write_all(fd, text.encode(), 0)
        finally:
            os.close(fd)
        new.replace(path)
