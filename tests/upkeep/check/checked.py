"""A check of a store in a directory, as the command does it, and what can be read of the store."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import verbs
from tierfs.app.check import Checking, CheckOutcome, Options, Summary
from tierfs.app.store import Store
from tierfs.base.bytes.progress import unseen
from tierfs.base.system import processes
from tierfs.base.words.errors import TierfsError
from tierfs.engine.metadata import environment
from tierfs.upkeep.check import metadata_probe
from tierfs.upkeep.check.repair.copies import MayLose


def run_check(
    path: Path, *, deep: bool = False, repair: bool = False, may_lose: MayLose = lambda *_: True
) -> tuple[list[CheckOutcome], Summary]:
    """Check a store, and mend it where that is asked for."""
    said: list[CheckOutcome] = []
    return said, Checking(path, Options(deep=deep, repair=repair, may_lose=may_lose), said.append, unseen).run()


def append(store: Store, name: str, data: bytes, *, seal: bool = False) -> None:
    """Append by a writer that is closed again."""
    writer = store.engine.open_writer(name)
    writer.append(data)
    store.engine.close_writer(writer)
    if seal:
        store.engine.seal(name)


def read(store: Store, name: str, start: int | None = None, end: int | None = None) -> bytes | None:
    """A segment's bytes; None where they cannot be read."""
    out, failed = bytearray(), False
    try:
        verbs.cat(store, name, start, end, None, out.extend)
    except* TierfsError:
        failed = True
    return None if failed else bytes(out)


def read_metadata_here(patch: pytest.MonkeyPatch) -> None:
    """Let the check's child, which reads the metadata first, be this process: it would be two thirds of a check."""

    def run(command: list[str]) -> processes.Done:
        assert command[1:4] == ["-P", "-m", metadata_probe.__name__]
        said, path = io.StringIO(), Path(command[4]).resolve()
        was_open = path in environment.environments
        with redirect_stdout(said), pytest.MonkeyPatch.context() as arguments:
            arguments.setattr(sys, "argv", command[3:])
            code = metadata_probe._main()
        if not was_open:
            environment.close_environment(path)
        return subprocess.CompletedProcess(command, code, said.getvalue(), "")

    # Not of all who run something: what is run here is the probe.
    patch.setattr(metadata_probe, "processes", SimpleNamespace(**{**vars(processes), "run": run}))
