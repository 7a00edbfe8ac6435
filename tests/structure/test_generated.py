"""The committed protobuf modules are what their .proto files generate."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATED = (
    "tierfs/engine/metadata/records_pb2.py",
    "tierfs/engine/metadata/records_pb2.pyi",
    "tierfs/engine/ledger/ledger_pb2.py",
    "tierfs/engine/ledger/ledger_pb2.pyi",
    "tierfs/engine/ledger/pulsar_api_pb2.py",
    "tierfs/engine/ledger/pulsar_api_pb2.pyi",
)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with freshly generated modules, by the same recipe as the committed ones."""
    out = tmp_path_factory.mktemp("proto")
    command = ["make", "--silent", "proto", f"PYTHON={sys.executable}", f"PROTO_OUT={out}"]
    subprocess.run(command, cwd=ROOT, check=True)
    return out


@pytest.mark.parametrize("path", GENERATED)
def test_generated_modules_are_current(generated: Path, path: str) -> None:
    if (generated / path).read_text() != (ROOT / path).read_text():
        pytest.fail(f"{path} does not match its .proto file; run: make proto", pytrace=False)
