"""A child of fork that does one thing and ends: it must never run the rest of the tests."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import NoReturn

FAILED = 1


def die(code: int = 0) -> NoReturn:
    """End this process as a kill does: nothing is closed, written or taken apart."""
    os._exit(code)


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
