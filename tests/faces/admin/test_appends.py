"""Appends of many clients: together, in order, each told its own result; and others may write between them."""

from __future__ import annotations

import http.client
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.faces.admin.conftest import Served, ask, serving
from tests.mount.waiting import eventually
from tierfs.base.words.errors import Unconfirmed
from tierfs.faces.admin import client, listen

CLIENTS = 16
EACH = 25


def test_clients_share_segments(served: Served) -> None:
    def client(number: int) -> list[tuple[int, bytes]]:
        done = []
        with closing(served.connection()) as connection:
            for step in range(EACH):
                body = f"{number}.{step};".encode() * (1 + step)
                answer = ask(connection, "POST", f"/v1/append/s{number % 3}", body)
                assert answer.status == 200
                assert answer.json["end"] - answer.json["start"] == len(body)
                done.append((answer.json["start"], body))
        return done

    with ThreadPoolExecutor(CLIENTS) as pool:
        results = list(pool.map(client, range(CLIENTS)))
    for segment in range(3):
        pieces = sorted(piece for number in range(segment, CLIENTS, 3) for piece in results[number])
        assert served.ask("GET", f"/v1/bytes/s{segment}").body == b"".join(body for _, body in pieces)
    assert all([start for start, _ in result] == sorted(start for start, _ in result) for result in results)


def test_of_those_who_expect_one_offset_exactly_one_appends(served: Served) -> None:
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(
            pool.map(
                lambda number: served.ask("POST", "/v1/append/s?expect_offset=0", b"%02d" % number), range(CLIENTS)
            )
        )
    assert sorted(answer.status for answer in answers) == [200] + [409] * (CLIENTS - 1)
    assert {answer.json.get("actual_length") for answer in answers} == {None, 2}


def test_a_failure_is_of_one_client(served: Served) -> None:
    tierfs("ledger", "create", "t", "--id", 1, store=served.path)
    targets = ["s", "s?expect_offset=7", f"t/{1:020}", "s", "d/..", "s"] * 4
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(lambda target: served.ask("POST", f"/v1/append/{target}", b"x").status, targets))
    assert [status for status, target in zip(answers, targets, strict=True) if target == "s"] == [200] * 12
    assert {status for status, target in zip(answers, targets, strict=True) if target[0] in "td"} == {400}


def test_an_idle_segment_is_left_to_other_processes(served: Served) -> None:
    served.ask("POST", "/v1/append/s", b"api ")
    assert eventually(lambda: tierfs("append", "s", store=served.path, stdin=b"command ", check=False).code == 0)
    assert served.ask("POST", "/v1/append/s", b"api").json["start"] == 12
    assert served.ask("GET", "/v1/bytes/s").body == b"api command api"


def test_a_writer_that_was_fenced_is_opened_again(path: Path) -> None:
    with serving(path, writer_idle_s="1h") as served:
        served.ask("POST", "/v1/append/s", b"one")
        tierfs("append", "--take-over", "s", store=path, stdin=b"two")
        assert served.ask("POST", "/v1/append/s", b"three").json == {"segment": "s", "start": 6, "end": 11}
        tierfs("append", "--take-over", "--seal", "s", store=path, stdin=b"!")
        assert served.ask("POST", "/v1/append/s", b"x").json["error"] == "Sealed"
        tierfs("unseal", "s", store=path)
        assert served.ask("POST", "/v1/append/s", b"four").json["start"] == 12
        assert served.ask("POST", "/v1/rm/s").status == 200
        assert served.ask("POST", "/v1/append/s", b"new").json["start"] == 0


def test_appends_that_the_bucket_acknowledges_are_told_when_it_has(served: Served) -> None:
    assert served.ask("PATCH", "/v1/policy/cold", b'{"ack": "cold"}').status == 200
    with ThreadPoolExecutor(CLIENTS) as pool:
        targets = ["cold/a", "cold/b", "local", "cold/a?expect_offset=999"] * 4
        statuses = list(pool.map(lambda target: served.ask("POST", f"/v1/append/{target}", b"x").status, targets))
    assert statuses == [200, 200, 200, 409] * 4
    for name in ("cold/a", "cold/b"):
        assert served.ask("GET", f"/v1/info/{name}").json["tiers"]["cold"]["bytes"] == 4
    assert served.ask("POST", "/v1/seal/cold/a").json["length"] == 4


def test_an_append_that_the_journal_does_not_name_is_not_to_be_repeated(path: Path) -> None:
    """The bytes are in the segment: the answer says where to go on, and no client takes it for one to try again."""
    journal = path.parent / "cold" / "journal"
    with serving(path, "[ack]\ndeadline_s = 3") as served:
        assert served.ask("PATCH", "/v1/policy/", b'{"ack": "cold"}').status == 200
        assert served.ask("POST", "/v1/append/s", b"before").status == 200
        journal.rename(journal.with_name("away"))
        journal.touch()
        told = served.ask("POST", "/v1/append/s", b"stored")
        assert (told.status, told.json["error"], told.json["end"]) == (504, "Unconfirmed", 12)
        assert "retry-after" not in told.headers
        with pytest.raises(Unconfirmed, match="12") as caught:
            client.append(served.socket, "s", b"too", None, seal=False, answer_s=60)
        assert caught.value.end == 15
        assert served.ask("GET", "/v1/bytes/s").body == b"beforestoredtoo"
        journal.unlink()
        journal.with_name("away").rename(journal)
        assert served.ask("POST", "/v1/append/s?expect_offset=15", b"!").status == 200


def test_commands_append_by_the_server(served: Served) -> None:
    """Without it, the second of two commands at one segment would find the first one's writer."""

    def command(number: int) -> list[str]:
        done = tierfs("append", "s", store=served.path, stdin=b"%03d;" % number)
        return done.out.split()[1:]

    with ThreadPoolExecutor(CLIENTS) as pool:
        ranges = sorted(pool.map(command, range(CLIENTS)), key=lambda ends: int(ends[0]))
    assert [int(end) - int(start) for start, end in ranges] == [4] * CLIENTS
    assert served.ask("GET", "/v1/info/s").json["length"] == 4 * CLIENTS
    refused = tierfs("append", "s", "--expect-offset", 3, store=served.path, stdin=b"x", check=False)
    assert (refused.code, f"its length is {4 * CLIENTS}" in refused.err) == (8, True)
    skipped = tierfs("append", "s", "--expect-offset", 60, "--skip", 1, store=served.path, stdin=b"123456", check=False)
    assert "--expect-offset 64 --skip 5" in skipped.err
    sealed = tierfs("append", "s", "--seal", store=served.path, stdin=b"end")
    assert sealed.out == f"s {4 * CLIENTS} {4 * CLIENTS + 3}\n"
    assert tierfs("append", "s", store=served.path, stdin=b"x", check=False).code == 7


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (4 << 20) + 3])
def test_a_long_input_is_appended_by_the_command_itself(served: Served, size: int) -> None:
    data = os.urandom(size)
    assert tierfs("append", "s", store=served.path, stdin=data).out == f"s 0 {size}\n"
    assert served.ask("GET", "/v1/bytes/s").body == data


def test_a_server_that_is_not_there_or_takes_nothing_is_done_without(path: Path) -> None:
    with serving(path, connections=1) as served:
        with closing(served.connection()) as connection:
            connection.connect()
            assert tierfs("append", "s", store=path, stdin=b"full;").out == "s 0 5\n"
        served.stop(signal.SIGKILL)
        assert served.socket.exists()
        assert tierfs("append", "s", store=path, stdin=b"killed").out == "s 5 11\n"


def test_a_server_that_dies_over_an_append_leaves_it_in_doubt(path: Path) -> None:
    """The body was sent: nobody may say that it was not appended."""
    with listen._unix_socket(path / "admin.sock") as listener:
        listener.listen()

        def die() -> None:
            with closing(listener.accept()[0]) as peer:
                peer.recv(65536)
                peer.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                peer.recv(65536)

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(die)
            refused = tierfs("append", "s", store=path, stdin=b"x", check=False)
            done.result(60)
    assert (refused.code, "s may or may not have the bytes" in refused.err) == (11, True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_was_acknowledged_is_there_after_a_kill(path: Path, number: int) -> None:
    with serving(path) as served:
        pid, last = served.pid, [0] * 4

        def client(at: int) -> None:
            with closing(served.connection()) as connection:
                try:
                    for _ in range(10_000):
                        answer = ask(connection, "POST", f"/v1/append/s{at}", bytes([65 + at]) * 100)
                        if answer.status != 200:
                            return
                        last[at] = answer.json["end"]
                        if min(last) > 500 and at == 0:
                            os.kill(pid, number)
                except (OSError, http.client.HTTPException):
                    return  # the server ended, perhaps in its answer

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(client, range(4)))
    for at in range(4):
        there = tierfs("cat", f"s{at}", store=path).out
        assert len(there) >= last[at] > 0
        assert set(there) == {chr(65 + at)}
