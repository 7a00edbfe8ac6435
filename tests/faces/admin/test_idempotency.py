"""Idempotency-Key: an append that is sent again after a lost answer is made once, whatever happened in between."""

from __future__ import annotations

import asyncio
import http.client
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.commands import tierfs
from tests.faces.admin.conftest import Got, Served, ask, dialled, serving
from tests.faces.admin.test_limits import answer
from tests.mount.waiting import eventually
from tierfs.app import store as app
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import OffsetMismatch
from tierfs.base.words.types import ByteRange
from tierfs.faces.admin.answers import Refused
from tierfs.faces.admin.appends import Appends
from tierfs.upkeep.holder import lock

KEY = '"8e03978e-40d5-43e8-bc93-6894a57f9324"'
CLIENTS = 8


def post(served: Served, target: str, body: bytes, key: str = KEY) -> Got:
    return served.ask("POST", f"/v1/append/{target}", body, Idempotency_Key=key)


def test_a_repeated_append_is_made_once(served: Served) -> None:
    first = post(served, "s", b"batch;")
    assert (first.status, "idempotent-replayed" in first.headers) == (200, False)
    assert served.ask("POST", "/v1/append/s", b"other;").status == 200
    again = post(served, "s", b"batch;")
    assert (again.status, again.json, again.headers["idempotent-replayed"]) == (200, first.json, "true")
    assert post(served, "s", b"batch;", KEY.strip('"')).json == first.json, "the quotes are not of the key"
    assert served.ask("GET", "/v1/bytes/s").body == b"batch;other;"
    assert post(served, "t", b"batch;").json["start"] == 0, "another segment has keys of its own"
    assert post(served, "s", b"batch;", '"another"').json == {"segment": "s", "start": 12, "end": 18}


def test_a_key_names_one_append(served: Served) -> None:
    assert post(served, "s?expect_offset=0", b"batch;").status == 200
    for target, body in (("s", b"batch!"), ("s", b"batch"), ("s?seal=1", b"batch;"), ("s?expect_offset=6", b"batch;")):
        refused = post(served, target, body)
        assert (refused.status, refused.json["error"]) == (422, "InvalidRequest"), (target, body)
    assert post(served, "s", b"batch;").status == 200, "without the offset it is the same"
    assert post(served, "s?expect_offset=0", b"batch;").status == 200
    assert served.ask("GET", "/v1/info/s").json["length"] == 6


@pytest.mark.parametrize("key", ["", '""', '"a', 'a"b', "a,b", '"a", "b"', "a b", '"a";q=1', '"é"', "k" * 256, '"\\x"'])
def test_what_is_no_key_is_refused(served: Served, key: str) -> None:
    assert post(served, "s", b"x", key).status == 400
    assert served.ask("GET", "/v1/info/s").status == 404


def test_two_keys_are_refused(served: Served) -> None:
    head = b"POST /v1/append/s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1\r\n"
    with closing(dialled(served.socket)) as sock:
        sock.sendall(head + b'Idempotency-Key: "a"\r\nIdempotency-Key: "a"\r\n\r\nx')
        assert answer(sock).startswith(b"HTTP/1.1 400")


def test_keys_of_any_length_and_character(served: Served) -> None:
    keys = ["k" * 255, '"' + "k" * 254 + '"', '"a b,c;d"', '"\\"\\\\"', "~!#"]
    for number, key in enumerate(keys):
        assert post(served, "s", b"x", key).json["start"] == number
    for number, key in enumerate(keys):
        assert post(served, "s", b"x", key).json["start"] == number


def test_a_refused_append_may_be_tried_again_under_its_key(served: Served) -> None:
    assert post(served, "s?expect_offset=1", b"y").status == 409
    assert served.ask("POST", "/v1/append/s", b"x").status == 200
    assert post(served, "s?expect_offset=1", b"y").json["end"] == 2


def test_a_sealing_append_is_answered_again(served: Served) -> None:
    first = post(served, "s?seal=1", b"last")
    assert post(served, "s?seal=1", b"last").json == first.json
    assert post(served, "s?seal=1", b"last", '"other"').json["error"] == "Sealed"
    assert post(served, "empty?seal=1", b"").json == post(served, "empty?seal=1", b"").json


def test_a_segment_that_is_made_anew_takes_the_append_again(served: Served) -> None:
    assert post(served, "s", b"batch;").status == 200
    for now in (0, 1):
        assert served.ask("POST", f"/v1/rm/s?now={now}").status == 200
        again = post(served, "s", b"batch;")
        assert (again.json["end"], "idempotent-replayed" in again.headers) == (6, False)


def test_a_stream_that_went_on_knows_the_keys_of_its_segments(served: Served) -> None:
    assert served.ask("PATCH", "/v1/policy/", b'{"seal_bytes": 4}').status == 200
    firsts = [post(served, "s", b"%04d" % number, f"k{number}").json for number in range(5)]
    assert served.ask("GET", "/v1/info/s.16").status == 200
    assert [post(served, "s", b"%04d" % number, f"k{number}").json for number in range(5)] == firsts


def test_a_key_outlives_the_server(path: Path) -> None:
    with serving(path) as served:
        first = post(served, "d/s", b"batch;")
        served.stop(signal.SIGKILL)
    tierfs("append", "d/s", store=path, stdin=b"between;")
    with serving(path) as served:
        assert post(served, "d/s", b"batch;").json == first.json
        assert served.ask("GET", "/v1/bytes/d/s").body == b"batch;between;"


def test_a_store_that_is_restored_from_a_backup_knows_the_keys_and_one_from_the_bucket_does_not(
    path: Path, tmp_path: Path
) -> None:
    with serving(path) as served:
        first = post(served, "s", b"batch;")
    tierfs("seal", "s", store=path)
    tierfs("offload", store=path)
    tierfs("backup", tmp_path / "dump", store=path)
    (path / "metadata").rename(tmp_path / "lost")
    assert tierfs("restore", tmp_path / "dump", store=path, check=False).code == 0
    tierfs("unseal", "s", store=path)
    with serving(path) as served:
        assert post(served, "s", b"batch;").json == first.json
    done = tierfs("recover", "--cold-dir", tmp_path / "cold", "--yes", store=tmp_path / "new", check=False)
    assert done.code == 0
    tierfs("unseal", "s", store=tmp_path / "new")
    with serving(tmp_path / "new") as served:
        assert post(served, "s", b"batch;").json["start"] == 6
        assert post(served, "s?expect_offset=6", b"batch;").status == 200
        refused = served.ask("POST", "/v1/append/s?expect_offset=0", b"batch;")
        assert refused.json["error"] == "OffsetMismatch", "which works there too"


def test_a_replica_takes_no_appends(path: Path, tmp_path: Path) -> None:
    with serving(path) as served:
        assert post(served, "s?seal=1", b"batch;").status == 200
    tierfs("offload", store=path)
    assert tierfs("replica", "--cold-dir", tmp_path / "cold", store=tmp_path / "replica", check=False).code == 0
    with serving(tmp_path / "replica") as served:
        assert post(served, "s?seal=1", b"batch;").status == 409


def test_appends_that_the_bucket_acknowledges_are_confirmed_again(path: Path) -> None:
    """A repeat is acknowledged once the journal names the bytes, and not before."""
    journal = path.parent / "cold" / "journal"
    with serving(path, "[ack]\ndeadline_s = 0.2") as served:
        assert served.ask("PATCH", "/v1/policy/", b'{"ack": "cold"}').status == 200
        first = post(served, "s", b"before", "k0")
        assert post(served, "s", b"before", "k0").json == first.json
        journal.rename(journal.with_name("away"))
        journal.touch()
        for _ in range(2):
            told = post(served, "s?seal=1", b"stored", "k1")
            assert (told.status, told.json["error"], told.json["end"]) == (504, "Unconfirmed", 12)
        journal.unlink()
        journal.with_name("away").rename(journal)
        assert post(served, "s?seal=1", b"stored", "k1").json == {"segment": "s", "start": 6, "end": 12}
        assert served.ask("GET", "/v1/bytes/s").body == b"beforestored"
        assert served.ask("GET", "/v1/info/s").json["tiers"]["cold"]["bytes"] == 12


def test_appends_are_made_once_though_the_server_is_killed(path: Path) -> None:
    """Each client repeats each append until it has an answer; a server that is killed is started again."""
    ended = threading.Event()

    def kill_and_start() -> None:
        for _ in range(4):
            assert eventually(lambda: lock.current(StorePaths(path).admin) is not None)
            eventually(lambda: False, within_s=0.3)
            with suppress(AssertionError, ProcessLookupError):
                Served(path).stop(signal.SIGKILL)
            tierfs("admin", store=path)
        ended.set()

    def client(number: int) -> int:
        step = 0
        while not ended.is_set() or step < 3:
            body = b"%d.%d;" % (number, step)
            while not sent(body):
                pass
            step += 1
        return step

    def sent(body: bytes) -> bool:
        try:
            with closing(Served(path).connection()) as connection:
                told = ask(connection, "POST", "/v1/append/s", body, Idempotency_Key=body.decode().strip(";"))
        except (OSError, http.client.HTTPException):
            return False
        assert told.status in (200, 409, 503), told  # 409: the lock of a writer that was killed goes a moment later
        return told.status == 200

    with serving(path) as served, ThreadPoolExecutor(CLIENTS + 1) as pool:
        killer = pool.submit(kill_and_start)
        steps = list(pool.map(client, range(CLIENTS)))
        killer.result()
        there = served.ask("GET", "/v1/bytes/s").body.decode().split(";")[:-1]
    wanted = [f"{number}.{step}" for number in range(CLIENTS) for step in range(steps[number])]
    assert sorted(there) == sorted(wanted)


def run(path: Path, work: Callable[[Appends], Any]) -> Any:
    """Do work with the appends of a store, in this process."""

    async def run(store: app.Store) -> Any:
        appends = Appends(store, 60.0)
        try:
            return await work(appends)
        finally:
            await appends.close()

    with app.open_store(path) as store:
        return asyncio.run(run(store))


def test_concurrent_requests_with_one_key_make_one_append(path: Path) -> None:
    async def work(appends: Appends) -> list[Any]:
        same = [appends.append("s", b"batch;", seal=False, key="k") for _ in range(10)]
        others = [
            appends.append("s", b"another", seal=False, key="k"),
            appends.append("t", b"batch;", seal=False, key="k"),
        ]
        return await asyncio.gather(*same, *others, return_exceptions=True)

    *same, other, elsewhere = run(path, work)
    assert same == [(ByteRange(0, 6), False)] + [(ByteRange(0, 6), True)] * 9
    assert isinstance(other, Refused)
    assert elsewhere == (ByteRange(0, 6), False)
    assert tierfs("cat", "s", store=path).out == "batch;"


def test_those_who_wait_for_an_append_that_fails_have_its_error(path: Path) -> None:
    async def work(appends: Appends) -> list[Any]:
        same = [appends.append("s", b"x", 7, seal=False, key="k") for _ in range(3)]
        failed = await asyncio.gather(*same, return_exceptions=True)
        return [*failed, await appends.append("s", b"x", 0, seal=False, key="k")]

    *failed, made = run(path, work)
    assert [type(error) for error in failed] == [OffsetMismatch] * 3
    assert made == (ByteRange(0, 1), False)


def test_a_key_is_found_by_the_next_process(path: Path) -> None:
    def work(appends: Appends) -> Any:
        return appends.append("s", b"batch;", seal=True, key="k")

    assert [run(path, work) for _ in range(2)] == [(ByteRange(0, 6), False), (ByteRange(0, 6), True)]
    with pytest.raises(Refused):
        run(path, lambda appends: appends.append("s", b"batch!", seal=True, key="k"))
