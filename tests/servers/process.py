"""A server in a process of its own, tied to ours by a pipe."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.endpoint import ACCESS_KEY, REGION, SECRET_KEY, S3Endpoint

STOP_S = 60
"""Ceph's script gives each of its four daemons 10 s to end and kills it then."""


class ServerError(Exception):
    """The server could not start; the message is what it printed."""


class ServerProcess:
    """Runs `command`, which prints `http://HOST:PORT ...` once it answers and ends when its input closes.

    The rest of that line, after the URL, is in `words`.

    The pipe is the leash: if this process dies, even by SIGKILL, the server reads end of file and stops.
    The command bounds its own start; start() waits for its first line and no longer.
    """

    access_key = ACCESS_KEY
    secret_key = SECRET_KEY
    region = REGION

    def __init__(
        self, command: Sequence[str], *, cwd: Path | None = None, more: Mapping[str, str] | None = None
    ) -> None:
        """`more`: variables of its environment beside ours."""
        self._command = list(command)
        self._cwd = cwd
        self._more = dict(more or {})
        self._process: subprocess.Popen[str] | None = None
        self._endpoint_url: str | None = None
        self.words: list[str] = []

    @property
    def endpoint_url(self) -> str:
        """The URL at which it answers. Only while it runs."""
        if self._endpoint_url is None:
            raise ServerError(f"{self._command[0]} is not running")
        return self._endpoint_url

    @property
    def endpoint(self) -> S3Endpoint:
        """Address and keys in one value. Only while it runs."""
        return S3Endpoint(self.endpoint_url, self.region, self.access_key, self.secret_key)

    def start(self) -> None:
        """Start and return when it answers; ServerError, with nothing left running, when it cannot."""
        if self._process is not None:
            raise ServerError(f"{self._command[0]} runs already")
        self._process = subprocess.Popen(
            self._command,
            cwd=self._cwd,
            env={**os.environ, **self._more},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C reaches the test run, which then stops its servers
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line.startswith("http://"):
            self._endpoint_url, *self.words = line.split()
            return
        output = line + self._close()
        raise ServerError(output.strip() or f"{self._command[0]} ended without a word")

    def join(self, address: str) -> None:
        """Use the server that another process of ours runs in the same directory, and will stop: its URL, and words."""
        self._endpoint_url, *self.words = address.split()

    def stop(self) -> None:
        """End it and wait until it is gone. Idempotent."""
        if self._process is not None:
            self._close()

    def _close(self) -> str:
        """Close its input, wait for its end, and return the rest of what it printed."""
        assert self._process is not None
        process, self._process, self._endpoint_url = self._process, None, None
        try:
            return process.communicate(timeout=STOP_S)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
