"""Children of fork that do one thing and end, and whether a process has ended."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import NoReturn

FAILED = 1

_NUM_THREADS = 17
"""Of the words after the name in `/proc/PID/stat`: proc(5)."""


def die(code: int = 0) -> NoReturn:
    """End this process as a kill does: nothing is closed, written or taken apart."""
    os._exit(code)


def runs(stat: str) -> bool:
    """Return whether a process with this `/proc/PID/stat` still runs: one thread of it keeps its locks and files."""
    words = stat.rpartition(")")[2].split()
    return words[0] != "Z" or int(words[_NUM_THREADS]) > 1  # after a kill the first thread may be the first to end


def code_of_child(work: Callable[[], int]) -> int:
    """Run `work` in a child of this process; return the code it gave, FAILED with the error printed for an error."""
    child = os.fork()
    if not child:
        code = FAILED
        try:
            code = work()
        except BaseException:
            traceback.print_exc()
        finally:
            die(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
