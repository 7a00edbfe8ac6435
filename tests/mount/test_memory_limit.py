"""A mount in a control group with little memory: 64 readers get every byte, and the kernel kills nothing."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import verbs
from tests.control_groups import ControlGroup, limited_to
from tests.mount.conftest import append
from tests.reality.reference import reference
from tests.servers.versity import VersityServer
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.place import Place, Server

pytestmark = [
    pytest.mark.mount,
    pytest.mark.slow,
    pytest.mark.timeout(400, method="thread"),
    pytest.mark.xdist_group(__name__),
]

READERS = 64
SIZE = 6 * MIB + 17
END_S = 300
READ_ALL = """
import hashlib, json, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

def digest(path):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

paths = sorted(Path(sys.argv[1]).glob("s*"))
with ThreadPoolExecutor(len(paths)) as pool:
    print(json.dumps(list(pool.map(digest, paths))))
"""
"""One thread for each segment; prints the digests."""


def content(number: int) -> bytes:
    """Bytes of the segment of a reader."""
    return reference(number, number + SIZE)


@contextmanager
def mounted(store: Path, path: Path, group: ControlGroup) -> Iterator[Path]:
    """Mount a store by a process in the group, until the end of the block."""
    path.mkdir()
    command = [sys.executable, "-P", "-m", "tierfs", "--store", store]
    run(group, *command, "mount", path)
    try:
        yield path
    finally:
        subprocess.run([*map(str, command), "umount", str(path)], check=True, timeout=END_S)


def run(group: ControlGroup, *words: object) -> str:
    """Run a command in the group; return what it printed."""
    return subprocess.run(group.command(*words), check=True, stdout=subprocess.PIPE, text=True, timeout=END_S).stdout


@pytest.fixture(scope="module")
def store(versity_server: VersityServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a cold segment for each reader: more bytes than the largest budget."""
    endpoint, path = versity_server.endpoint, tmp_path_factory.mktemp("limited") / "store"
    init_store(path, Place.parsed(f"s3://{endpoint.create_bucket()}/p", Server(endpoint.endpoint_url)))
    with app.open_store(path) as opened:
        for number in range(READERS):
            append(opened, f"s{number:02}", content(number), seal=True)
        verbs.offload(opened)
        verbs.evict(opened)
    return path


@pytest.mark.parametrize("limit_mib", [256, pytest.param(512, marks=pytest.mark.whole), 1024])
def test_64_readers_get_every_byte_within_the_memory_limit(store: Path, tmp_path: Path, limit_mib: int) -> None:
    expected = [hashlib.sha256(content(number)).hexdigest() for number in range(READERS)]
    with limited_to(limit_mib * MIB) as group, mounted(store, tmp_path / "mnt", group) as mnt:
        reading = run(group, sys.executable, "-c", READ_ALL, mnt)
        assert json.loads(reading) == expected
        assert group.killed() == 0
        print(f"at most {group.peak_bytes() // MIB} of {limit_mib} MiB")
