"""Requests to the cold tier, which somebody pays: docs/limits.md has the same numbers."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import verbs
from tests.conftest import Bucket
from tests.docs.blocks import ROOT
from tests.mount.conftest import Mount, append
from tests.mount.waiting import eventually
from tests.reality.reference import reference
from tests.servers.gate import Gate, gate_to
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.place import Place, Server

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread")]


@pytest.fixture
def gate(moto_bucket: Bucket) -> Iterator[Gate]:
    with gate_to(moto_bucket[0].endpoint_url) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path, moto_bucket: Bucket, gate: Gate) -> Iterator[app.Store]:
    init_store(tmp_path / "store", Place.parsed(f"s3://{moto_bucket[1]}/p", Server(gate.url)))
    with app.open_store(tmp_path / "store") as opened:
        yield opened


def promised() -> dict[str, int]:
    """Return the rows of the document's table."""
    section = (ROOT / "docs/limits.md").read_text().partition("## Requests")[2].partition("\n## ")[0]
    return {row[1]: int(row[2]) for row in re.finditer(r"^\| (.+?) \| ([0-9]+)", section, re.MULTILINE)}


def objects(gate: Gate) -> list[str]:
    """Return the requests for bytes of segments: a mount looks at its journal now and then."""
    return [request for request in gate.requests if "/segments/" in request or "/packs/" in request]


def test_everything_asks_as_often_as_the_document_says(store: app.Store, gate: Gate, mount: Mount) -> None:
    limits, counted = promised(), dict[str, int]()
    batch = limits["each batch of changes, of any number of objects"]

    def note(what: str, besides: int = 0) -> None:
        counted[what] = len(gate.requests) - besides
        gate.requests.clear()

    note("`init`")
    append(store, "s", reference(0, 64 * MIB), seal=True)
    verbs.offload(store)
    note("offload of an object of 64 MiB", batch)
    verbs.evict(store)
    for number in range(1000):
        append(store, f"d/{number}", reference(0, 2000), seal=True)
    gate.requests.clear()
    verbs.offload(store)
    note("offload of 1,000 segments of 2 KB", batch)
    mnt = mount().path
    assert eventually(lambda: bool(objects(gate))), "its first GET"
    gate.requests.clear()
    subprocess.run(["ls", "-laR", mnt], stdout=subprocess.DEVNULL, check=True)
    assert objects(gate) == []
    with (mnt / "s").open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(file.fileno(), 4096, 30 * MIB)
    counted["a read of 4 KiB at a random place"] = len(objects(gate))
    assert counted.items() <= limits.items()
