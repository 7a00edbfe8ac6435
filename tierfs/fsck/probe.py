"""Reading all of the metadata in a child process first: a damaged LMDB map can kill who reads it.

LMDB has no checksums and believes its page numbers: a damaged one is a SIGBUS or SIGSEGV, or a page that
leads back to itself. A child that dies, or finds keys out of order, is a finding, and nothing else dies.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from tierfs import errors
from tierfs.errors import DataLoss, TierfsError
from tierfs.fsck.findings import RECOVER, Finding, Kind, Severity
from tierfs.metadata.environment import open_environment
from tierfs.metadata.tables import ALL_NAMES
from tierfs.metadata.transaction import ReadTransaction, read_transaction

_FAILED = 1
"""Exit code of a child that found an error and wrote it as JSON to standard output."""


def probe(path: Path) -> Finding | None:
    """Read all of the metadata in directory `path` in a child; what is wrong with it, or None.

    Raises what else keeps it from being opened: NotFound, PermissionDenied, Conflict.
    """
    command = [sys.executable, "-m", __name__, str(path)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode == 0:
        return None
    if done.returncode != _FAILED or not done.stdout:
        return _unreadable(_how_it_ended(done.returncode))
    told = json.loads(done.stdout)
    kind = errors.named(told["kind"])
    if not issubclass(kind, DataLoss):
        raise kind(told["message"], remedy=told["remedy"])
    return _unreadable(told["message"])


def read_everything(txn: ReadTransaction) -> int:
    """Touch every row; returns how many there are. Raises DataLoss for keys out of order."""
    rows = 0
    for name in ALL_NAMES:
        last = b""
        for key, _ in txn.scan_raw(name):
            if key <= last:
                raise DataLoss(f"the keys of {name.decode()} are out of order")
            last = key
            rows += 1
    return rows


def _how_it_ended(code: int) -> str:
    if code < 0:
        return f"reading the metadata ended in {signal.Signals(-code).name}"
    return f"reading the metadata failed with exit code {code}"


def _unreadable(text: str) -> Finding:
    return Finding(Kind.METADATA_UNREADABLE, Severity.DAMAGE, "metadata", text, remedy=RECOVER)


def _main() -> int:
    try:
        with read_transaction(open_environment(Path(sys.argv[1]).resolve())) as txn:
            read_everything(txn)
    except TierfsError as exc:
        print(json.dumps({"kind": type(exc).__name__, "message": str(exc), "remedy": exc.remedy}))
        return _FAILED
    return 0


if __name__ == "__main__":
    sys.exit(_main())
