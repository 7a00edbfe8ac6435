"""A server of SSH: whom it takes for the right one, who may ask, and connections that end."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from threading import Barrier, Event, Thread

import asyncssh
import pytest

from tests.commands import tierfs
from tests.conformance.storages import place_storage
from tests.disks import disk
from tests.servers.leashed import children_of
from tests.servers.ssh import SshServer
from tierfs.base.options.config import ColdSettings
from tierfs.base.words.errors import AlreadyExists, InvalidRequest, NotFound, PermissionDenied, StorageFull, Unavailable
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.places.address import connect_place
from tierfs.engine.chunkstore.places.file_place import FilePlace
from tierfs.engine.chunkstore.places.sftp import SftpFiles
from tierfs.engine.chunkstore.places.storage import PlaceStorage
from tierfs.engine.chunkstore.protocol import Abilities, BufferSource


@pytest.fixture
def keys(sftp_directory: str, ssh_server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `.ssh` that a test may change."""
    own = tmp_path / "home/.ssh"
    shutil.copytree(ssh_server.home / ".ssh", own)
    monkeypatch.setenv("HOME", str(own.parent))
    return own


def line_of(url: str, store: Path) -> str:
    done = tierfs("init", "--cold-url", url, store=store, check=False)
    assert done.code == PermissionDenied.exit_code, done
    return done.err


@pytest.mark.parametrize(
    "configured", ["", "StrictHostKeyChecking no\n", "UserKnownHostsFile none\n", "UserKnownHostsFile ~/none\n"]
)
def test_a_server_that_is_not_known_is_refused(
    keys: Path, sftp_directory: str, tmp_path: Path, configured: str
) -> None:
    if "none" not in configured:
        (keys / "known_hosts").unlink()
    (keys / "config").write_text(configured)
    line = line_of(sftp_directory, tmp_path / "store")
    assert "its host key is not in known_hosts" in line
    assert "ssh-keyscan -p " in line
    assert not (tmp_path / "store").exists()
    assert configured or not (keys / "known_hosts").exists(), "no key is added"


def test_a_server_with_another_key_than_the_known_one_is_refused(
    keys: Path, sftp_directory: str, tmp_path: Path
) -> None:
    known = keys / "known_hosts"
    where = known.read_text().split()[0]
    known.write_text(f"{where} {' '.join((keys / 'id_ed25519.pub').read_text().split()[:2])}\n")
    line = line_of(sftp_directory, tmp_path / "store")
    assert "its host key is not the one in known_hosts" in line
    assert "keyscan" not in line


def test_a_log_has_no_line_for_each_session(sftp_directory: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with closing(place_storage(sftp_directory)) as storage:
        assert list(storage.list("")) == []
    assert not [row for row in caplog.records if row.name.startswith("asyncssh")]


def test_a_user_without_a_key_is_refused(keys: Path, sftp_directory: str, tmp_path: Path) -> None:
    (keys / "id_ed25519").unlink()
    assert "Permission denied" in line_of(sftp_directory, tmp_path / "store")


def test_a_host_is_one_of_ssh_config_and_the_key_that_of_the_agent(
    keys: Path, sftp_directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, path = sftp_directory.removeprefix("sftp://").split("/", 1)
    user, _, port = server.replace("@127.0.0.1:", " ").partition(" ")
    (keys / "config").write_text(f"Host nas\n  HostName 127.0.0.1\n  Port {port}\n  User {user}\n")
    agents = keys.parent / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(agents)], stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        agent.stdout.readline()  # what it prints once its socket is there
        monkeypatch.setenv("SSH_AUTH_SOCK", str(agents))
        subprocess.run(["ssh-add", "-q", str(keys / "id_ed25519")], check=True, timeout=30)
        (keys / "id_ed25519").unlink()
        with closing(place_storage(f"sftp://nas/{path}")) as storage:
            storage.put("object", BufferSource(b"bytes"))
            assert storage.stat("object").length_bytes == len(b"bytes")
        agent.kill()


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (None, "127.0.0.1:[0-9]+: Connection refused$"),
        (b"", "did not respond within 0.5 s"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n" * 1000, "127.0.0.1:[0-9]+: "),
    ],
)
def test_a_server_that_is_none_of_ssh_is_an_outage(says: bytes | None, told: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def serve() -> None:
            with listening.accept()[0] as connection:
                connection.sendall(says or b"")
                connection.settimeout(60)
                while connection.recv(1000):
                    pass

        if says is None:
            listening.close()
        else:
            Thread(target=serve, daemon=True).start()
        settings = ColdSettings(read_timeout_s=0.5)
        with (
            closing(connect_place(f"sftp://127.0.0.1:{port}/x", "", settings, Abilities())) as storage,
            pytest.raises(Unavailable, match=told) as caught,
        ):
            storage.stat("object")
        assert "\n" not in str(caught.value)


def test_a_server_that_is_slow_to_prove_itself_is_waited_for_as_one_that_answers(
    keys: Path, sftp_directory: str
) -> None:
    """A busy machine forks a process and exchanges keys for a connection: longer than to connect to it takes."""
    server, path = sftp_directory.removeprefix("sftp://").split("/", 1)
    user, _, port = server.replace("@127.0.0.1:", " ").partition(" ")
    known = (keys / "known_hosts").read_text().split(maxsplit=1)[1]
    settings = ColdSettings(connect_timeout_s=1.0, read_timeout_s=60.0)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        between = listening.getsockname()[1]
        (keys / "known_hosts").write_text(f"[127.0.0.1]:{between} {known}")

        def serve() -> None:
            with listening.accept()[0] as connection, socket.create_connection(("127.0.0.1", int(port))) as sshd:
                Event().wait(2 * settings.connect_timeout_s)  # the time is what is tried
                passing = Thread(target=passed, args=(connection, sshd))
                passing.start()
                passed(sshd, connection)
                passing.join()

        serving = Thread(target=serve)
        serving.start()
        with closing(connect_place(f"sftp://{user}@127.0.0.1:{between}/{path}", "", settings, Abilities())) as storage:
            storage.put("object", BufferSource(b"bytes"))
            assert storage.stat("object").length_bytes == len(b"bytes")
        serving.join()


def passed(source: socket.socket, target: socket.socket) -> None:
    """Pass bytes on until there are no more."""
    with suppress(OSError):  # one of them was aborted
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(
    ("program", "told"),
    [("/bin/sleep 60", "does not serve SFTP: no response"), ("/bin/false", r"does not serve SFTP: \S")],
)
def test_a_server_without_sftp_is_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, told: str
) -> None:
    with SshServer(tmp_path / "server", program) as server:
        monkeypatch.setenv("HOME", str(server.home))
        settings = ColdSettings(read_timeout_s=1.0)
        with (
            closing(connect_place(server.create_directory(), "", settings, Abilities())) as storage,
            pytest.raises(Unavailable, match=told),
        ):
            storage.stat("object")


def test_a_configuration_that_ssh_cannot_use_is_told(keys: Path, sftp_directory: str) -> None:
    (keys / "known_hosts").write_text("@nonsense 127.0.0.1 ssh-ed25519 AAAA\n")
    with closing(place_storage(sftp_directory)) as storage, pytest.raises(InvalidRequest, match="known hosts marker"):
        storage.stat("object")


@pytest.fixture
def storage(sftp_directory: str) -> Iterator[PlaceStorage]:
    with closing(connect_place(sftp_directory, "", ColdSettings(read_timeout_s=5.0), Abilities())) as storage:
        yield storage


def sessions_of(server: SshServer) -> list[int]:
    """The processes that serve connections now."""
    return children_of(server.program)


def test_a_connection_that_ended_is_made_again(storage: PlaceStorage, ssh_server: SshServer) -> None:
    storage.put("object", BufferSource(b"bytes"))
    for pid in sessions_of(ssh_server):
        os.kill(pid, signal.SIGKILL)
    buffer = bytearray(5)
    for attempts_left in (1, 0):  # the end may be noticed by the request that follows it
        try:
            storage.read_into("object", 0, memoryview(buffer))
            break
        except Unavailable:
            assert attempts_left
    assert bytes(buffer) == b"bytes"


def test_a_server_that_stops_in_the_middle_is_an_outage(storage: PlaceStorage, ssh_server: SshServer) -> None:
    data = os.urandom(12 * MIB)
    storage.put("object", BufferSource(data))
    buffer = bytearray(len(data))
    stopped: list[int] = []

    def stop(received: int) -> None:
        if not stopped:
            stopped.extend(sessions_of(ssh_server))
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)

    try:
        with pytest.raises(Unavailable, match="does not respond"):
            storage.read_into("object", 0, memoryview(buffer), progress=stop)
        storage.read_into("object", 0, memoryview(buffer))
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGKILL)
    assert buffer == data


def test_of_writers_at_once_one_gets_the_name(sftp_directory: str) -> None:
    storages = [place_storage(sftp_directory) for _ in range(4)]
    for slot in range(3):
        barrier, won = Barrier(len(storages)), []

        def write(number: int, name: str = f"slot/{slot}", barrier: Barrier = barrier, won: list[int] = won) -> None:
            barrier.wait()
            try:
                storages[number].put(name, BufferSource(b"%d" % number), metadata={"attempt": str(number)})
                won.append(number)
            except AlreadyExists:
                pass

        threads = [Thread(target=write, args=(number,)) for number in range(len(storages))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert storages[0].stat(f"slot/{slot}").metadata == {"attempt": str(won[0])}
    for storage in storages:
        storage.close()


def test_a_name_that_was_given_back_before_it_is_looked_at_is_taken(
    storage: PlaceStorage, sftp_directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = SftpFiles._require_free

    def given_back(self: SftpFiles, path: str, error: asyncssh.SFTPFailure) -> None:
        Path(path).unlink(missing_ok=True)
        look(self, path, error)

    path = "/" + sftp_directory.removeprefix("sftp://").split("/", 1)[1] + "/file"
    assert isinstance(storage.place, FilePlace)
    files = storage.place.files
    files.write(path, BufferSource(b"first"))
    with pytest.raises(FileExistsError):
        files.write(path, BufferSource(b"other"), create_only=True)
    monkeypatch.setattr(SftpFiles, "_require_free", given_back)
    files.write(path, BufferSource(b"second"), create_only=True)
    assert Path(path).read_bytes() == b"second"


def test_names_of_others_that_are_no_text_are_passed_over(storage: PlaceStorage, sftp_directory: str) -> None:
    storage.put("d/object", BufferSource(b"bytes"))
    root = os.fsencode("/" + sftp_directory.removeprefix("sftp://").split("/", 1)[1])
    (Path(os.fsdecode(root)) / "d").joinpath(os.fsdecode(b"\xff")).write_bytes(b"x")
    assert [stored.name for stored in storage.list("")] == ["d/object"]


def test_a_full_disk_is_told(sftp_directory: str, tmp_path: Path) -> None:
    server = sftp_directory.removeprefix("sftp://").split("/", 1)[0]
    with disk(tmp_path / "disk", 2 * MIB), closing(place_storage(f"sftp://{server}{tmp_path}/disk/x")) as storage:
        with pytest.raises(StorageFull, match=f"sftp://{server}/.*/large: the server's disk is full$"):
            storage.put("large", BufferSource(bytes(3 * MIB)))
        assert list(storage.uploads("")) == []
        storage.put("small", BufferSource(b"bytes"))
        with pytest.raises(NotFound):
            storage.stat("large")


def test_a_full_disk_of_a_server_that_does_not_say_so_is_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        SshServer(tmp_path / "server", "internal-sftp -P statvfs,fstatvfs") as server,
        disk(tmp_path / "disk", 2 * MIB),
    ):
        monkeypatch.setenv("HOME", str(server.home))
        address = server.create_directory().removeprefix("sftp://").split("/", 1)[0]
        with closing(place_storage(f"sftp://{address}{tmp_path}/disk/x")) as storage, pytest.raises(Unavailable):
            storage.put("large", BufferSource(bytes(3 * MIB)))


@pytest.mark.parametrize(
    ("lacks", "refused"),
    [("hardlink,fsync", False), ("posix-rename", True)],
)
def test_a_server_without_an_extension(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str, refused: bool
) -> None:
    with SshServer(tmp_path / "server", f"internal-sftp -P {lacks}") as server:
        monkeypatch.setenv("HOME", str(server.home))
        with closing(place_storage(server.create_directory())) as storage:
            if refused:
                with pytest.raises(InvalidRequest, match="POSIX rename not supported"):
                    storage.probe_abilities("probe/x")
                return
            assert storage.probe_abilities("probe/x").create_only_put
            storage.put("object", BufferSource(b"bytes"))
            with pytest.raises(AlreadyExists):
                storage.put("object", BufferSource(b"other"))
            assert storage.stat("object").length_bytes == len(b"bytes")
