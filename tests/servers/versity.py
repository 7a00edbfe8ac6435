"""versitygw: an S3 server over a directory, in Go; a second kind beside Ceph's gateway. It starts in a moment.

    python -m tests.servers.versity

builds it once, with the Go that is there (`make test-deps`; some minutes of CPU).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.servers.endpoint import ACCESS_KEY, REGION, SECRET_KEY
from tests.servers.leashed import Leashed

VERSION = "v1.8.0"
PROGRAM = Path(__file__).parents[2] / ".venv" / "go" / f"versitygw-{VERSION}"
_BUILD_S = 1200


class VersityServer(Leashed):
    """versitygw with its buckets below `directory`; started again, it has them still."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        keys = f"--access {ACCESS_KEY} --secret {SECRET_KEY} --region {REGION}"
        super().__init__(
            [str(PROGRAM), *keys.split(), "--port", "127.0.0.1:{port}", "--quiet", "posix", str(directory)]
        )

    def start(self) -> None:
        """Start at the port it had, or at a free one."""
        self._directory.mkdir(parents=True, exist_ok=True)
        super().start()


def why_not() -> str:
    """Return why it cannot be had here, or ""."""
    return "" if PROGRAM.exists() else "versitygw needs Go, and make test-deps"


def main() -> None:
    """Build the program, unless that was done or there is no Go."""
    if PROGRAM.exists() or shutil.which("go") is None:
        return
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    source = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
    more = {"GOBIN": str(PROGRAM.parent), "GOFLAGS": "-ldflags=-s"}
    subprocess.run(["go", "install", source], check=True, timeout=_BUILD_S, env={**os.environ, **more})
    (PROGRAM.parent / "versitygw").replace(PROGRAM)


if __name__ == "__main__":
    main()
