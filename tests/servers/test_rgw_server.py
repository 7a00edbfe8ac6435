"""The real S3 server goes away with its starter; tests/conformance shows what it does."""

from __future__ import annotations

from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.servers.process import ServerError
from tests.servers.rgw import RgwServer

pytestmark = pytest.mark.s3


@pytest.mark.whole  # it starts one more server
def test_stop_ends_every_daemon(tmp_path: Path) -> None:
    with RgwServer(tmp_path / "rgw") as server:
        url = server.endpoint_url
        commands = running_commands(tmp_path)
        assert len(commands) == 4, commands
    assert running_commands(tmp_path) == []
    with pytest.raises(OSError, match="refused"):
        urlopen(url)


def test_a_failing_start_names_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "bin" / "monmaptool"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(broken.parent), prepend=":")
    with pytest.raises(ServerError, match=rf"^ceph-rgw: could not start .* see {tmp_path}/rgw/start\.log"):
        RgwServer(tmp_path / "rgw").start()


def test_a_directory_with_other_content_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("bytes")
    with pytest.raises(ServerError, match="not empty"):
        RgwServer(tmp_path).start()
    assert (tmp_path / "precious").read_text() == "bytes"


def running_commands(directory: Path) -> list[str]:
    """Command lines of the processes that name the configuration in `directory`, zombies excluded."""
    found = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = cmdline.read_bytes().decode().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
        if str(directory / "rgw" / "ceph.conf") in words:
            found.append(" ".join(words))
    return found
