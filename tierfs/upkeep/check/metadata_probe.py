"""Reads all metadata in a child process, before any other process does.

LMDB has no checksums and trusts its page numbers, so a damaged one is a SIGBUS or SIGSEGV, or a page that leads back
to itself. A child that dies of that, twice, or finds keys out of order, becomes a finding, and no other process dies. A
child that ends otherwise, or cannot start, proves nothing: the metadata could not be checked.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from tierfs.base.system import processes
from tierfs.base.words import errors
from tierfs.base.words.errors import DataLoss, TierfsError, Unavailable
from tierfs.base.words.names import printable
from tierfs.engine.metadata.environment import open_environment
from tierfs.engine.metadata.transaction import ReadTransaction, read_transaction
from tierfs.upkeep.check.findings import RECOVER, Finding, Kind, Severity

# Exit code of a child that found an error and wrote it as JSON to standard output.
_FAILED = 1

# First line of a child that has everything it needs and begins to read.
_READING = "reading"

# Ends of a process that follows a damaged page of LMDB: a page that is not there, or one of its assertions.
_FAULTS = (signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT)

# One fault may be the machine's; the metadata is accused when every try ends in one.
_TRIES = 2


def probe(path: Path) -> Finding | None:
    """Read all metadata in directory `path` in a child process; return a finding if it cannot be read, or None.

    Raises any other error of opening it: NotFound, PermissionDenied, Conflict; Unavailable when the child fails for a
    reason that proves nothing about the metadata.
    """
    for _ in range(_TRIES):
        done = processes.run(processes.python(__name__, path))
        began, _, answer = done.stdout.partition("\n")
        if began != _READING or done.returncode > _FAILED or (done.returncode == _FAILED and not answer):
            raise _unchecked(done)
        if done.returncode == 0:
            return None
        if done.returncode == _FAILED:
            return _finding_of(json.loads(answer))
        if -done.returncode not in _FAULTS:
            raise _unchecked(done)
    return _unreadable(f"reading the metadata crashed with {signal.Signals(-done.returncode).name}, {_TRIES} times")


def _finding_of(answer: Mapping[str, str]) -> Finding:
    kind = errors.named(answer["kind"])
    if not issubclass(kind, DataLoss):
        raise kind(answer["message"], remedy=answer["remedy"])
    return _unreadable(answer["message"])


def _unchecked(done: processes.Done) -> Unavailable:
    code = done.returncode
    end = f"signal {-code}" if code < 0 else f"exit code {code}"
    last = next((f": {printable(line)}" for line in reversed(done.stderr.strip().splitlines())), "")
    return Unavailable(
        f"the metadata could not be checked: the process that reads it exited with {end}{last}",
        remedy="no damage is known; check this machine's memory and this installation: tierfs doctor",
    )


def read_everything(txn: ReadTransaction) -> int:
    """Read every row and return the number of rows. Raises DataLoss for keys out of order."""
    rows = 0
    for name in sorted(txn.database_names):
        last = b""
        for key, _ in txn.scan_raw(name):
            if key <= last:
                raise DataLoss(f"the keys of {name.decode()} are out of order")
            last = key
            rows += 1
    return rows


def _unreadable(text: str) -> Finding:
    return Finding(Kind.METADATA_UNREADABLE, Severity.DAMAGE, "metadata", text, remedy=RECOVER)


def _main() -> int:
    print(_READING, flush=True)
    try:
        with read_transaction(open_environment(Path(sys.argv[1]).resolve())) as txn:
            read_everything(txn)
    except TierfsError as exc:
        print(json.dumps({"kind": type(exc).__name__, "message": str(exc), "remedy": exc.remedy}))
        return _FAILED
    return 0


if __name__ == "__main__":
    sys.exit(_main())
