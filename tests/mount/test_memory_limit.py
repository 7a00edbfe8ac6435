"""A mount in a control group with little memory: 64 readers get every byte, and the kernel kills nothing."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path

import pytest

from tests import verbs
from tests.control_groups import ControlGroup, limited_to
from tests.mount.conftest import append
from tests.reality.reference import reference
from tests.servers.versity import VersityServer
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.words.types import MIB, Tier
from tierfs.engine.chunkstore.place import Place, Server
from tierfs.engine.metadata.tables import OBJECTS

pytestmark = [
    pytest.mark.mount,
    pytest.mark.slow,
    pytest.mark.timeout(400, method="thread"),
    pytest.mark.xdist_group(__name__),
]

READERS = 64
SIZE = 6 * MIB + 17
END_S = 300
READ_ALL = 'for path in "$0"/s*; do sha256sum "$path" & done; wait'
"""A process for each segment; prints the digests. 64 threads of one process of Python had up to 88 of the 256 MiB."""

LETTERS = bytes(ord("a") + byte % 16 for byte in range(256))

OFFLOAD_MIB = 256
"""The memory of an offload. Forms of cold objects: `plain`, `text`, compressed to a half, and `random`, compressed
though it does not shrink."""


def content(number: int, form: str) -> bytes:
    """Bytes of the segment of a reader."""
    data = reference(number, number + SIZE)
    return data.translate(LETTERS) if form == "text" else data


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


def filled(server: VersityServer, path: Path, form: str) -> Path:
    """Return a store with a local segment for each reader: more bytes than the largest budget."""
    endpoint, policy = server.endpoint, {"compression": "off" if form == "plain" else "zstd"}
    place = Place.parsed(f"s3://{endpoint.create_bucket()}/p", Server(endpoint.endpoint_url))
    init_store(path, place, root_policies=policy)
    with app.open_store(path) as opened:
        for number in range(READERS):
            append(opened, f"s{number:02}", content(number, form), seal=True)
    return path


class ColdStores:
    """Stores whose bytes are cold, by their form; each is made once, by an offload with little memory."""

    def __init__(self, server: VersityServer, directory: Path) -> None:
        self._server, self._directory = server, directory
        self._made: dict[str, Path] = {}

    def of(self, form: str) -> Path:
        """Return the store of a form."""
        if form not in self._made:
            store = filled(self._server, self._directory / form, form)
            with limited_to(OFFLOAD_MIB * MIB) as group:
                run(group, sys.executable, "-P", "-m", "tierfs", "--store", store, "offload")
                assert group.killed() == 0
                print(f"at most {group.peak_bytes() // MIB} MiB")
            with app.open_store(store) as opened:
                verbs.evict(opened)
            self._made[form] = store
        return self._made[form]


@pytest.fixture(scope="module")
def stores(versity_server: VersityServer, tmp_path_factory: pytest.TempPathFactory) -> ColdStores:
    return ColdStores(versity_server, tmp_path_factory.mktemp("limited"))


@pytest.mark.parametrize(
    ("form", "limit_mib"),
    [
        ("plain", 256),
        pytest.param("plain", 512, marks=pytest.mark.whole),
        pytest.param("text", 512, marks=pytest.mark.whole),
        pytest.param("random", 512, marks=pytest.mark.whole),
        pytest.param("plain", 1024, marks=pytest.mark.whole),
    ],
)
def test_64_readers_get_every_byte_within_the_memory_limit(
    stores: ColdStores, tmp_path: Path, form: str, limit_mib: int
) -> None:
    store, expected = stores.of(form), [hashlib.sha256(content(number, form)).hexdigest() for number in range(READERS)]
    with limited_to(limit_mib * MIB) as group, mounted(store, tmp_path / "mnt", group) as mnt:
        reading = run(group, "sh", "-c", READ_ALL, mnt)
        assert group.killed() == 0
        assert [digest for digest, _ in sorted(map(str.split, reading.splitlines()), key=itemgetter(1))] == expected
        print(f"at most {group.peak_bytes() // MIB} of {limit_mib} MiB")


@pytest.mark.parametrize(
    "form", ["plain", *(pytest.param(name, marks=pytest.mark.whole) for name in ("text", "random"))]
)
def test_an_offload_stays_within_the_memory_limit(stores: ColdStores, form: str) -> None:
    with app.open_store(stores.of(form)) as opened, opened.metadata.read() as txn:
        assert {record.tier for _, record in txn.scan(OBJECTS)} == {Tier.COLD}
