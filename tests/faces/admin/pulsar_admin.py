"""Pulsar's own command line, pulsar-admin, for many commands in one JVM.

    python -m tests.faces.admin.pulsar_admin

fetches its jars with Maven and compiles its program, once (`make test-deps`).
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.servers.hdfs_server import missing_tools, prepare
from tests.servers.quick_java import OPTIONS

SOURCES = Path(__file__).with_name("pulsar")
KEPT = Path(__file__).parents[3] / ".venv" / "pulsar-admin"
DONE = KEPT / "done"

_JAVA = ["java", "-Xmx256m", *OPTIONS.split()]
_TOKENS = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
_END_S = 20


@dataclass(frozen=True)
class Printed:
    """The result of a command: its exit code, and what it printed."""

    code: int
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class PulsarAdmin:
    """One JVM with the tool; a context manager."""

    def __enter__(self) -> Self:
        classes = f"{KEPT}/classes:{KEPT}/jars/*"
        self._jvm = subprocess.Popen(
            [*_JAVA, "-cp", classes, "org.apache.pulsar.admin.cli.PulsarAdmin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._jvm.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._jvm.kill()
            self._jvm.communicate()

    def run(self, url: str, token: Path, command: str) -> Printed:
        """Run one command, whose words are separated by blanks. One that hangs is ended by the test's time limit."""
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        options = ["--admin-url", url, "--auth-plugin", _TOKENS, "--auth-params", f"file://{token}"]
        self._jvm.stdin.write("\t".join([*options, *command.split()]).encode() + b"\n")
        self._jvm.stdin.flush()
        code, size = map(int, self._jvm.stdout.readline().split())
        return Printed(code, self._jvm.stdout.read(size).decode())


def main() -> None:
    """Fetch the jars and compile the program; nothing where a tool is missing."""
    if missing_tools():
        return
    prepare(SOURCES, KEPT)
    DONE.touch()


if __name__ == "__main__":
    main()
