"""A server that falls silent at each request of an append with ack=cold: the caller has an answer at the deadline.

Every request may be silent for ten minutes, so that an end of anything else than the deadline is beyond the test's.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import tierfs
from tests.commands import FORKED_COMMANDS
from tests.commands import tierfs as run
from tests.conftest import Bucket
from tests.faces.admin.conftest import Served
from tests.mount.conftest import opened_store, serving
from tests.servers.gate import Gate, gate_to
from tierfs.app.batches import driver
from tierfs.app.setup.create import init_store
from tierfs.app.store import open_store
from tierfs.base.words.errors import TierfsError, Unavailable, Unconfirmed
from tierfs.base.words.types import LocationId
from tierfs.engine.chunkstore.place import Place, Server
from tierfs.engine.metadata import policies, tables
from tierfs.engine.metadata.tables import LOCATIONS

pytestmark = pytest.mark.timeout(120, method="thread")

SETTINGS = """
[cold]
read_timeout_s = 600
[ack]
deadline_s = %s
"""
DEADLINE_S = 2

# Requests of an append to a store whose last proof of ownership is old, and whether the append is in the segment.
PHASES = {
    "everything": (".", False),
    "the proof of ownership": ("GET .*list-type=2", False),
    "the object": ("PUT .*/packs/", False),
    "the journal's entry": ("PUT .*/journal/", True),
}


in_two_phases = pytest.mark.parametrize(
    "phase",
    [
        pytest.param(name, marks=[pytest.mark.whole] * (name in ("everything", "the proof of ownership")))
        for name in PHASES
    ],
)
"""Before and behind the entry; a command is tried in each phase, and all go the same way."""


@pytest.fixture
def gate(moto_bucket: Bucket) -> Iterator[Gate]:
    with gate_to(moto_bucket[0].endpoint_url) as opened:
        yield opened


@pytest.fixture
def url(moto_bucket: Bucket) -> str:
    return f"s3://{moto_bucket[1]}/p"


@pytest.fixture
def store(tmp_path: Path, url: str, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store whose appends the bucket acknowledges; `s` has some bytes."""
    monkeypatch.setenv(FORKED_COMMANDS, "1")
    path = tmp_path / "store"
    init_store(path, Place.parsed(url, Server(gate.url)))
    run("config", "/", "ack=cold", store=path)
    assert run("append", "s", store=path, stdin=b"before,").out == "s 0 7\n"
    (path / "store.toml").write_text(SETTINGS % DEADLINE_S)
    return path


def all_is_there(store: Path, url: str, gate: Gate, data: bytes, tmp_path: Path) -> None:
    """Nothing is lost or doubled: here, and in a store that is made of the bucket alone."""
    assert run("cat", "s", store=store).out == data.decode()
    other = tmp_path / "other"
    run("-q", "recover", "--cold-url", url, "--endpoint-url", gate.url, store=other)
    assert run("cat", "s", store=other).out == data.decode()


@pytest.mark.parametrize("phase", PHASES)
def test_a_command_ends_at_its_deadline_and_says_how_to_go_on(
    store: Path, url: str, gate: Gate, tmp_path: Path, phase: str
) -> None:
    requests, is_in = PHASES[phase]
    gate.hold_up(requests)
    done = run("append", "s", store=store, stdin=b"late,", check=False)
    assert gate.held_up, "no request was held up"
    assert (done.code, "no answer within 2s (ack.deadline_s)" in done.err) == (11, True), done
    assert ("nothing was appended to s" in done.err, "the bytes 7 to 12 of s were uploaded" in done.err) == (
        not is_in,
        is_in,
    )
    gate.open()
    if is_in:
        assert "--expect-offset 12" in done.err
        assert run("append", "s", "--expect-offset", 7, store=store, stdin=b"late,", check=False).code == 8
    else:
        run("append", "s", "--expect-offset", 7, store=store, stdin=b"late,")
    run("append", "s", "--expect-offset", 12, store=store, stdin=b"after")
    all_is_there(store, url, gate, b"before,late,after", tmp_path)


@in_two_phases
def test_appends_from_python_end_at_their_deadline(
    store: Path, url: str, gate: Gate, tmp_path: Path, phase: str
) -> None:
    """Of several threads at once, to several segments; a writer that waits for its turn too."""
    requests, is_in = PHASES[phase]
    names = ["s", "s", "t", "u"]
    ends: list[BaseException | None] = [None] * len(names)
    with tierfs.open_store(store) as opened:
        for name in "tu":
            opened.append(name, b"-")
        writers = [opened.open_writer(name) for name in names]
        gate.hold_up(requests)

        def append(number: int) -> None:
            try:
                writers[number].append(b"%d" % number)
            except TierfsError as exc:
                ends[number] = exc

        threads = [threading.Thread(target=append, args=(number,)) for number in range(len(names))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert gate.held_up
        stored = [isinstance(end, Unconfirmed) for end in ends]
        assert all(isinstance(end, Unavailable) for end in ends), ends
        # A proof of ownership is young here: its listing is the one behind the entry, or that of the pool after it.
        assert phase == "the proof of ownership" or stored == [is_in] * len(names), ends
        assert opened.info("s").length == 7 + sum(stored[:2])
        gate.open()
        for number, writer in enumerate(writers):
            if not stored[number]:
                writer.append(b"%d" % number)
        writers[0].append(b"!")
        for writer in writers:
            writer.close()
    for name, length in (("s", 10), ("t", 2), ("u", 2)):
        assert int(run("--json", "info", name, store=store).json["length"]) == length
    all_is_there(store, url, gate, run("cat", "s", store=store).out.encode(), tmp_path)


@in_two_phases
def test_the_admin_api_answers_at_the_deadline(store: Path, url: str, gate: Gate, tmp_path: Path, phase: str) -> None:
    requests, is_in = PHASES[phase]
    run("admin", store=store)
    served = Served(store)
    try:
        gate.hold_up(requests)
        answer = served.ask("POST", "/v1/append/s", b"late,")
        assert gate.held_up
        assert (answer.status, answer.json["error"], answer.json.get("end")) == (
            (504, "Unconfirmed", 12) if is_in else (503, "Unavailable", None)
        )
        gate.open()
        if not is_in:
            assert served.ask("POST", "/v1/append/s?expect_offset=7", b"late,").status == 200
        assert served.ask("POST", "/v1/append/s?expect_offset=12", b"after").status == 200
    finally:
        served.stop()
    all_is_there(store, url, gate, b"before,late,after", tmp_path)


PLACES = {
    "hdfs": "hdfs://{}/tier",
    "webhdfs": "webhdfs://{}/tier",
    "sftp": "sftp://user@{}/tier",
    "gs": "gs://bucket/tier",
    "abfs": "abfs://container/tier",
}


@pytest.fixture
def silent() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:  # nobody accepts: the kernel does
        yield f"127.0.0.1:{server.getsockname()[1]}"


def cold_directory_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FORKED_COMMANDS, "1")
    path = tmp_path / "store"
    (tmp_path / "cold").mkdir()
    init_store(path, Place.in_directory(tmp_path / "cold"))
    run("append", "s", "--ack", "cold", store=path, stdin=b"before,")
    (path / "store.toml").write_text(SETTINGS % DEADLINE_S)
    return path


@pytest.mark.parametrize("kind", PLACES)
def test_a_place_of_any_kind_that_is_silent_ends_an_append(
    kind: str, silent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = cold_directory_store(tmp_path, monkeypatch)
    monkeypatch.setenv("HOME", str(tmp_path))
    blobs = f"AccountName=a;AccountKey=aGVsbG8=;BlobEndpoint=http://{silent}/a;"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"DefaultEndpointsProtocol=http;{blobs}")
    with open_store(store) as opened, opened.metadata.write_notes() as txn:
        place = policies.location(txn, LocationId(1))
        endpoint = f"http://{silent}" if kind == "gs" else ""
        moved = replace(place, url=PLACES[kind].format(silent), endpoint_url=endpoint)
        txn.put(LOCATIONS, tables.u32(1), moved)
    done = run("append", "s", "--ack", "cold", store=store, stdin=b"late", check=False)
    assert (done.code, "nothing was appended to s" in done.err) == (11, True), done
    assert "no answer within 2s (ack.deadline_s)" in done.err
    assert run("--json", "info", "s", store=store).json["length"] == 7


@pytest.mark.mount
def test_a_directory_that_hangs_ends_an_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory below a mount whose process was stopped: each look into it waits without a limit."""
    store, cold = cold_directory_store(tmp_path, monkeypatch), tmp_path / "cold"
    (tmp_path / "hanging").mkdir()
    with opened_store(tmp_path / "stopped") as other, serving(other.path, tmp_path / "hanging") as mounted:
        cold.rename(tmp_path / "away")
        cold.symlink_to(tmp_path / "hanging" / "tier")
        mounted.process.send_signal(signal.SIGSTOP)
        try:
            done = run("append", "s", "--ack", "cold", store=store, stdin=b"late,", check=False)
        finally:
            mounted.process.send_signal(signal.SIGCONT)
    assert (done.code, "nothing was appended to s" in done.err) == (11, True), done
    assert "no answer within 2s (ack.deadline_s)" in done.err
    cold.unlink()
    (tmp_path / "away").rename(cold)
    run("append", "s", "--ack", "cold", store=store, stdin=b"after")
    assert run("cat", "s", store=store).out == "before,after"


def test_a_distributed_write_ends_at_its_deadline(store: Path, url: str, gate: Gate, tmp_path: Path) -> None:
    with open_store(store) as opened:
        gate.silence()
        with pytest.raises(Unavailable, match=r"no answer within 2s \(ack.deadline_s\)"):
            driver.begin(opened, "nightly", "out")
        gate.open()
        job = driver.begin(opened, "nightly", "out")
        with job.task(0) as task:
            task.open("part-00000").write(b"row\n")
            uploaded = task.finish()
        gate.hold_up("PUT .*/journal/")
        with pytest.raises(Unavailable, match="version 1 of nightly is not in the bucket's journal yet") as caught:
            driver.commit(opened, job, uploaded, 1)
        assert gate.held_up
        assert "no answer within 2s (ack.deadline_s)" in str(caught.value)
        gate.open()
        again = driver.commit(opened, job, uploaded, 1)
        assert (again.repeated, again.published) == (True, True)
    assert run("cat", "out/part-00000", store=store).out == "row\n"
    all_is_there(store, url, gate, b"before,", tmp_path)


def test_a_store_is_closed_while_requests_are_unanswered(store: Path, gate: Gate) -> None:
    with tierfs.open_store(store) as opened:
        gate.silence()
        with pytest.raises(Unavailable, match="nothing was appended to s"):
            opened.append("s", b"x")
        with pytest.raises(Unavailable, match="nothing was appended to s"):
            opened.append("s", bytes(20 << 20))  # in parts, which are sent by threads of their own
    gate.open()
