"""Logs that are sent to the store of another host: each line once, whatever becomes of the server or of its answers."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.app.follow.following import Told
from tests.app.follow.served import CutLine, Host, ServedStore, serving
from tierfs.app.follow import remote
from tierfs.app.follow.follower import LogFollower
from tierfs.app.follow.listing import states, states_at
from tierfs.app.follow.local import LocalTarget
from tierfs.app.follow.server import AdminServer, ServerAddress
from tierfs.app.follow.sources import sources_of
from tierfs.app.follow.target import TargetUnavailable
from tierfs.app.store import open_store
from tierfs.base.system import osio
from tierfs.base.words.errors import Conflict, InvalidRequest, NotFound, PermissionDenied
from tierfs.engine.metadata.tables import FOLLOWED

LINES = [f"{number} of many lines, each with its own number\n" for number in range(1000)]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedStore]:
    with serving(tmp_path) as made:
        yield made


@pytest.fixture
def host(served: ServedStore, tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path / "web1", served.port, token=served.token)
    yield made
    made.restart()


def test_lines_are_sent_once_over_restarts_and_rotations(served: ServedStore, host: Host) -> None:
    host.write("one\ntwo\nthr")
    host.write("other\n", "other.log")
    host.look()
    host.restart()
    host.write("ee\nfour\n")
    (host.logs / "app.log").rename(host.logs / "app.log.1")
    host.write("five\n")
    host.look(2)
    assert served.text("hosts/web1/app.log") == "one\ntwo\nthree\nfour\nfive\n"
    assert served.text("hosts/web1/other.log") == "other\n"
    assert host.told.warnings == []


def test_a_rotated_file_is_read_although_its_log_has_no_file_after_a_restart(served: ServedStore, host: Host) -> None:
    host.write("one\n")
    host.look()
    host.restart()
    host.write("two\n")
    (host.logs / "app.log").rename(host.logs / "app.log.1")
    host.look()
    assert served.text("hosts/web1/app.log") == "one\ntwo\n"


def test_a_lost_answer_doubles_nothing_and_loses_nothing(served: ServedStore, host: Host) -> None:
    line = CutLine(served.port)
    host.port = line.port
    with closing(line):
        host.write("one\n")
        host.look()
        for number in range(3):
            line.loses = 1
            host.write(f"more {number}\n")
            host.look(2)
        assert served.text("hosts/web1/app.log") == "one\nmore 0\nmore 1\nmore 2\n"
        assert [text.partition(":")[0] for text in host.told.warnings] == ["waiting"] * 3


def test_a_server_that_is_away_is_waited_for_and_reported_once(served: ServedStore, host: Host) -> None:
    for name in ("a.log", "b.log"):
        host.write("one\n", name)
    host.look()
    served.stop()
    for name in ("a.log", "b.log"):
        host.write("two\n", name)
    host.look(3)
    assert [text.partition(" does")[0] for text in host.told.warnings] == [f"waiting: http://127.0.0.1:{host.port}"]
    served.start()
    host.look()
    assert [served.text(f"hosts/web1/{name}") for name in ("a.log", "b.log")] == ["one\ntwo\n"] * 2


def test_a_run_from_cron_does_not_wait_for_a_server(served: ServedStore, host: Host) -> None:
    host.write("one\n")
    follower = host.follower
    served.stop()
    with pytest.raises(TargetUnavailable):
        follower.run_once()
    host.restart()
    with pytest.raises(TargetUnavailable):
        host.look()
    assert host.told.warnings == []


def test_a_service_waits_for_its_server_at_the_start(served: ServedStore, host: Host) -> None:
    host.write("one\n")
    served.stop()
    target = host.target(waits=True)
    timer = threading.Timer(0.5, served.start)
    timer.start()
    with closing(LogFollower(target, sources_of([str(host.logs)]), host.told)) as follower:
        follower.run_once()
    timer.join()
    assert served.text("hosts/web1/app.log") == "one\n"
    assert len(host.told.warnings) == 1


def test_a_full_disk_of_the_server_is_waited_for_and_reported_once(served: ServedStore, host: Host) -> None:
    for name in ("a.log", "b.log"):
        host.write("one\n", name)
    host.look()
    served.stop()
    served.start(free_space_floor_bytes="1PiB")
    for name in ("a.log", "b.log"):
        host.write("two\n", name)
    host.look(3)
    assert len(host.told.warnings) == 1
    assert "waiting: " in host.told.warnings[0]
    served.stop()
    served.start()
    host.look(2)
    assert [served.text(f"hosts/web1/{name}") for name in ("a.log", "b.log")] == ["one\ntwo\n"] * 2


def test_a_body_that_is_too_long_for_the_server_is_sent_in_parts(served: ServedStore, host: Host) -> None:
    served.stop()
    served.start(body_bytes=50_000)
    for name in ("a.log", "b.log", "c.log"):
        host.write("".join(LINES[:800]), name)
    host.look()
    assert [served.text(f"hosts/web1/{name}") for name in ("a.log", "b.log", "c.log")] == ["".join(LINES[:800])] * 3
    host.write("".join(LINES * 2), "long.log")
    host.look()
    assert "long.log waits: the body is longer" in host.told.warnings[0]


def test_another_host_cannot_follow_into_the_same_segments(served: ServedStore, host: Host, tmp_path: Path) -> None:
    host.write("one\n")
    host.look()
    other = Host(tmp_path / "web1", served.port, sender="web2", token=served.token)
    with pytest.raises(Conflict, match="followed by another host, web1"):
        other.look()
    elsewhere = Host(tmp_path / "web2", served.port, sender="web2", token=served.token)
    elsewhere.write("two\n")
    elsewhere.look()
    assert "app.log is followed by another host, web1" in elsewhere.told.warnings[0]
    with closing(open_store(served.path)) as store:
        local = LocalTarget(store, "hosts/web1", Told())
        with pytest.raises(Conflict, match="followed by another host, web1"):
            LogFollower(local, sources_of([str(host.logs)]), Told())
    assert served.text("hosts/web1/app.log") == "one\n"
    elsewhere.restart()


def test_a_host_that_replaces_another_one_takes_its_name(served: ServedStore, host: Host, tmp_path: Path) -> None:
    host.write("one\n")
    host.look()
    host.restart()
    new = Host(tmp_path / "new", served.port, token=served.token)
    new.write("two\n")
    new.look(4)
    assert served.text("hosts/web1/app.log") == "one\ntwo\n"
    new.restart()


def test_a_segment_without_a_record_continues_in_its_file(served: ServedStore, host: Host) -> None:
    """As after a recovery of the other store."""
    with closing(open_store(served.path)) as store:
        writer = store.engine.open_writer("hosts/web1/app.log")
        writer.append("".join(LINES[:400]).encode())
        store.engine.close_writer(writer)
    host.write("".join(LINES))
    host.look()
    assert served.text("hosts/web1/app.log") == "".join(LINES)


def test_a_store_that_lost_its_records_meanwhile_gets_no_line_twice(served: ServedStore, host: Host) -> None:
    line = CutLine(served.port)
    host.port = line.port
    with closing(line):
        host.write("".join(LINES[:400]))
        host.look()
        served.stop()
        with closing(open_store(served.path)) as store, store.metadata.write() as txn:
            for key in [key for key, _ in txn.scan_raw(FOLLOWED.name)]:
                txn.delete(FOLLOWED.name, key)
        served.start()
        line.loses = 1  # so that the sender looks at the records
        host.write("".join(LINES[400:]))
        host.look(3)
        assert served.text("hosts/web1/app.log") == "".join(LINES)


def test_a_wrong_token_is_an_error_at_the_start_and_waited_for_later(
    served: ServedStore, host: Host, tmp_path: Path
) -> None:
    host.write("one\n")
    host.token = tmp_path / "token"
    with pytest.raises(PermissionDenied, match="cannot read the token"):
        host.look()
    host.token.write_text("another")
    with pytest.raises(PermissionDenied, match="does not accept the token"):
        host.look()
    host.token.write_text(served.token.read_text())
    host.look()
    host.token.write_text("another")
    host.write("two\n")
    host.look()
    assert len(host.told.warnings) == 1
    host.token.write_text(served.token.read_text())
    host.look(2)
    assert served.text("hosts/web1/app.log") == "one\ntwo\n"


def test_a_server_that_is_none_is_an_error(served: ServedStore, host: Host) -> None:
    host.write("one\n")
    host.port = served.port
    host.into = ""
    server = AdminServer(ServerAddress("127.0.0.1", served.port, is_encrypted=False, token_file=served.token))
    with closing(server), pytest.raises(InvalidRequest, match="is not a tierfs admin that takes followed logs"):
        server.get("/v1/nothing")
    unknown = AdminServer(ServerAddress("nohost.invalid", 1, is_encrypted=False))
    with pytest.raises(NotFound, match="unknown host"):
        unknown.get("/v1/health")


def test_lists_of_this_host_and_of_the_other_one(served: ServedStore, host: Host) -> None:
    host.write("one\n")
    host.look()
    host.write("two\n")
    address = ServerAddress("127.0.0.1", served.port, is_encrypted=False, token_file=served.token)
    with closing(AdminServer(address)) as server:
        [here] = states_at(server, "hosts", "web1")
        assert states_at(server, "hosts", "web2") == []
    assert (here.segment, here.state, here.lag_bytes) == ("hosts/web1/app.log", "followed", 4)
    with closing(open_store(served.path)) as store:
        [there] = states(store)
    assert (there.path, there.state, there.lag_bytes, there.sender) == (here.path, "sent", None, "web1")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://logs.example", "expected https://HOST:PORT"),
        ("logs.example:9160", "expected https://HOST:PORT"),
        ("https://logs.example:9160/v1", "expected https://HOST:PORT"),
        ("https://user@logs.example:9160", "expected https://HOST:PORT"),
        ("https://logs.example:x", "expected https://HOST:PORT"),
        ("https://[::1:9160", "expected https://HOST:PORT"),
        ("http://logs.example:9160", "would be sent unencrypted"),
        ("http://localhost.example:9160", "would be sent unencrypted"),
    ],
)
def test_urls_that_are_none_and_that_would_send_in_clear_are_refused(url: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        ServerAddress.parse(url, None, None)
    assert ServerAddress.parse("http://[::1]:9160", None, None).url == "http://[::1]:9160"


def test_the_name_of_a_host_is_made_of_its_machine_id(tmp_path: Path) -> None:
    file = tmp_path / "id"
    file.write_text("0123456789abcdef0123456789abcdef\n")
    name = remote.default_sender(file)
    host, _, digest = name.rpartition("-")
    assert (host, len(digest), digest in file.read_text()) == (os.uname().nodename, 8, False)
    file.write_text("uninitialized\n")
    assert remote.default_sender(file) == host


def test_a_connection_is_kept_and_made_again_once_the_server_closed_it(served: ServedStore) -> None:
    address = ServerAddress("127.0.0.1", served.port, is_encrypted=False, token_file=served.token)
    with closing(AdminServer(address)) as server, ExitStack() as stack:
        osio.allow_more_open_files(4096)
        for _ in range(1100):  # select(2) takes no descriptors above 1,023
            stack.enter_context(Path("/dev/null").open("rb"))
        for _ in range(2):
            for _ in range(3):
                assert server.get("/v1/health")["healthy"]
            served.stop()
            served.start()
