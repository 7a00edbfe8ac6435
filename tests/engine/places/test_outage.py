"""A server of the cold tier that is away for a while: commands say so, lose nothing, and go on once it is back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.servers import versity
from tests.servers.hdfs_server import HdfsServer, missing_tools
from tests.servers.process import ServerProcess
from tests.servers.ssh import PROGRAM, SshServer
from tests.servers.versity import VersityServer
from tierfs.base.words.types import MIB

TEXT = b"a line of text\n" * (MIB // 8)


def hdfs(directory: Path) -> tuple[HdfsServer, Callable[[], tuple[str, ...]]]:
    if missing := missing_tools():
        pytest.skip(f"HDFS needs {' and '.join(missing)}")
    server = HdfsServer(directory)
    return server, lambda: ("--cold-url", server.root("/tier").webhdfs)


def s3(directory: Path) -> tuple[VersityServer, Callable[[], tuple[str, ...]]]:
    if reason := versity.why_not():
        pytest.skip(reason)
    server = VersityServer(directory)

    def where() -> tuple[str, ...]:
        endpoint = server.endpoint
        return ("--bucket", f"s3://{endpoint.create_bucket()}/p", "--endpoint-url", endpoint.endpoint_url)

    return server, where


def sftp(directory: Path) -> tuple[SshServer, Callable[[], tuple[str, ...]]]:
    if PROGRAM is None:
        pytest.skip("no sshd: make test-deps")
    server = SshServer(directory)
    return server, lambda: ("--cold-url", server.create_directory())


@pytest.fixture(
    params=[pytest.param(hdfs, marks=[pytest.mark.hdfs, pytest.mark.whole]), s3, sftp], ids=["hdfs", "versity", "sftp"]
)
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ServerProcess, tuple[str, ...]]]:
    monkeypatch.setenv("HOME", str(tmp_path / "server/home"))  # where SSH looks for its keys
    server, options = request.param(tmp_path / "server")
    with server:
        yield server, options()


def test_an_outage_passes(
    place: tuple[ServerProcess, tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, options = place
    store = tmp_path / "store"
    tierfs("init", *options, store=store)
    tierfs("-q", "config", "cold.attempts=1", "read.deadline_s=1", store=store, check=False)
    for name in ("cold", "local"):
        tierfs("-q", "append", name, store=store, stdin=TEXT)
    tierfs("-q", "offload", "cold", store=store)
    tierfs("-q", "evict", "cold", store=store)

    server.stop()
    for words in (("cat", "cold"), ("offload", "local"), ("replica", *options)):
        where = tmp_path / "copy" if words[0] == "replica" else store
        done = tierfs(*words, store=where, check=False)
        assert done.code == 11, words
        assert "  check the " in done.err, "what to do"
    assert tierfs("cat", "local", store=store).out.encode() == TEXT, "what is local is read as ever"
    tierfs("-q", "append", "local", store=store, stdin=b"written meanwhile")

    server.start()
    tierfs("-q", "offload", "local", store=store)
    tierfs("-q", "evict", store=store)
    assert tierfs("cat", "cold", store=store).out.encode() == TEXT
    assert tierfs("cat", "local", store=store).out.encode() == TEXT + b"written meanwhile"
    assert tierfs("check", "--read", store=store).out.endswith("clean\n")
