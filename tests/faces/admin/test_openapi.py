"""The document says what is served, and what it allows never ends in an internal error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faces.admin.conftest import Served
from tierfs.faces.admin import openapi
from tierfs.faces.admin.resources import Resources
from tierfs.faces.admin.routes import OPENAPI_PATH, OPERATIONS

ROOT = Path(__file__).parents[3]
EXAMPLES = 12
"""Requests for each operation; `make test-all` draws more."""


def test_the_file_is_the_document() -> None:
    """Write it again: python -m tests.faces.admin.test_openapi."""
    assert json.loads((ROOT / "docs/openapi.json").read_text()) == openapi.document(OPERATIONS)


def test_every_operation_has_a_handler_and_stands_once() -> None:
    assert all(callable(getattr(Resources, operation.handler)) for operation in OPERATIONS)
    assert len({(operation.method, operation.path) for operation in OPERATIONS}) == len(OPERATIONS)


def test_the_document_is_served(served: Served) -> None:
    assert served.ask("GET", OPENAPI_PATH).json == openapi.document(OPERATIONS)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_what_the_document_allows_is_answered_as_it_says(served: Served, tmp_path: Path) -> None:
    """schemathesis draws requests from the document, also ones that it does not allow, and checks each answer."""
    program = tmp_path / "fuzz.py"
    program.write_text(FUZZ)
    done = subprocess.run(
        [sys.executable, program, served.socket, str(EXAMPLES)],
        capture_output=True,
        text=True,
        check=False,
        timeout=230,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    assert served.ask("GET", "/v1/health").status == 200


FUZZ = """
import http.client, json, socket, sys, warnings
from urllib.parse import urlsplit
warnings.simplefilter("ignore")
import requests, schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from requests.adapters import BaseAdapter, HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

path, examples = sys.argv[1], int(sys.argv[2])


class Connection(HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(path)


class Pool(HTTPConnectionPool):
    ConnectionCls = Connection


class Adapter(HTTPAdapter):
    def get_connection_with_tls_context(self, *_, **__):
        return Pool("tierfs")


session = requests.Session()
session.mount("http://", Adapter())
document = session.get("http://tierfs/v1/openapi.json").json()
from schemathesis import checks as of
schema = schemathesis.openapi.from_dict(document)
failed = 0
for result in schema.get_all_operations():
    operation = result.ok()

    @seed(48)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck),
              phases=[Phase.generate])
    @given(case=operation.as_strategy())
    def check(case):
        answer = case.call(base_url="http://tierfs", session=session)
        assert answer.status_code < 500 or answer.status_code in (503, 507), (answer.status_code, answer.content)
        if answer.status_code not in (503, 507):
            case.validate_response(answer, checks=[
                of.not_a_server_error, of.status_code_conformance,
                of.content_type_conformance, of.response_schema_conformance,
            ])

    try:
        check()
    except BaseException as exc:
        failed += 1
        print(operation.method, operation.path, exc)
print("failed", failed)
sys.exit(failed > 0)
"""

if __name__ == "__main__":
    (ROOT / "docs/openapi.json").write_text(json.dumps(openapi.document(OPERATIONS), indent=1) + "\n")
