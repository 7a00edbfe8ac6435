"""One machine as a Spark task sees it: its Python, its tierfs, its mounts, and the way to the cold tier.

Sent to executors by value, so that it also runs on machines without tierfs: only the standard library is imported at
the top, and a view is a plain dict.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

View = dict[str, Any]

# Executor id of a session that runs its tasks itself, as Spark calls it.
DRIVER = "driver"

# States of a path besides those of tierfs.base.system.mounts.MountState.
NO_MOUNT, MISSING, FORBIDDEN, UNTOLD = "no mount", "missing", "forbidden", "untold"
PART = "bind mount of a part of a mount"

# Processes from a task's own up to its JVM: the worker, the daemon that forked it, the JVM, and one to spare.
_GENERATIONS = 4


def look(question: Mapping[str, Any], executor: str = "") -> View:
    """Return a view of this machine; `executor` names the view, by default after the executor it runs on."""
    view: View = {
        "executor": executor or executor_id(),
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "program": sys.executable,
        "tierfs": None,
        "missing": "",
        "pyarrow": None,
        "mounts": [],
        "cold_error": None,
    }
    try:
        import tierfs
    except ImportError as exc:
        view["missing"] = str(exc)
        return view
    view["tierfs"] = tierfs.__version__
    view["pyarrow"] = pyarrow_version()
    view["mounts"] = [mount_at(path) for path in question["mounts"]]
    if question["location"] is not None:
        view["cold_error"] = cold_error(question)
    return view


def executor_id() -> str:
    """Return the id on the command line of the JVM above this process."""
    process = os.getppid()
    for _ in range(_GENERATIONS):
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break  # another user's process, or the last one
        if "--executor-id" in words:
            return words[words.index("--executor-id") + 1]
    return DRIVER


def pyarrow_version() -> str | None:
    """Return the version of pyarrow, or None if it cannot be imported."""
    try:
        import pyarrow
    except ImportError:
        return None
    return str(pyarrow.__version__)


def mount_at(path: str) -> View:
    """Return the state of `path`, and for a mount that answers its store and its position in the journal."""
    from tierfs.base.system.mounts import MountState, state_of
    from tierfs.base.system.places import mount_of
    from tierfs.base.words.errors import TierfsError

    try:
        place = mount_of(Path(path))
    except TierfsError as exc:  # below another filesystem, or in what was removed
        return {"path": path, "state": str(exc)}
    if place is None:
        return {"path": path, "state": NO_MOUNT if os.path.lexists(path) else MISSING}
    mount = place[0]
    state = state_of(mount)
    if state is not MountState.ALIVE:
        return {"path": path, "state": state.value}
    if mount.root:
        return {"path": path, "state": PART}
    try:
        stats = json.loads((mount.mountpoint / ".tierfs" / "stats").read_text())
    except PermissionError:
        return {"path": path, "state": UNTOLD if os.access(path, os.R_OK) else FORBIDDEN}
    except OSError:
        return {"path": path, "state": MountState.DEAD.value}
    journal = stats["journal"]
    return {
        "path": path,
        "state": state.value,
        "store": stats["store"],
        "store_id": stats["store_id"],
        "slot": journal["slot"],
        "replica": journal["replica"],
    }


def cold_error(question: Mapping[str, Any]) -> str:
    """Return the reason one listing of the journal fails, or "" if it succeeds."""
    try:
        from tierfs.base.options.config import ColdSettings
        from tierfs.engine.chunkstore.place import Place
        from tierfs.engine.journal.names import JOURNAL_PREFIX
        from tierfs.engine.metadata.records import LocationRecord

        location = LocationRecord(**question["location"])
        storage = Place(location, Path(question["store"]), ColdSettings(**question["cold"])).open()
        try:
            return "" if next(storage.list(JOURNAL_PREFIX), None) is not None else "it contains no journal of a store"
        finally:
            storage.close()
    except Exception as exc:  # whatever the executor's tierfs or its environment raises is the answer
        return str(exc) or type(exc).__name__


def look_from_a_task(question: Mapping[str, Any], _: Iterator[int]) -> Iterator[View]:
    """Run as one task of a stage."""
    yield look(question)
