"""A server that takes connections and says nothing: every call of every place ends, within its time-outs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tierfs.base.options.config import ColdSettings
from tierfs.base.words.errors import Unavailable
from tierfs.base.words.types import LocationId
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage, ObjectPiece, Uploads
from tierfs.engine.metadata.records import LocationRecord

SETTINGS = ColdSettings(connect_timeout_s=0.3, read_timeout_s=0.3, attempts=1)
LONGEST_S = 30.0
"""Of one call: the clients repeat some of them by themselves."""


@pytest.fixture
def silent() -> Iterator[int]:
    """Return the port of a server that never answers."""
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:

        def accept() -> None:
            try:
                while True:
                    kept.append(server.accept()[0])
            except OSError:
                return

        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    for each in kept:
        each.close()


CALLS: dict[str, Callable[[ChunkStorage], object]] = {
    "put": lambda storage: storage.put("segments/a", BufferSource(b"x")),
    "compose": lambda storage: storage.compose("segments/b", [ObjectPiece("segments/a", 0, 1, "e")]),
    "read_into": lambda storage: storage.read_into("segments/a", 0, memoryview(bytearray(1))),
    "stat": lambda storage: storage.stat("segments/a"),
    "delete": lambda storage: storage.delete("segments/a"),
    "list": lambda storage: list(storage.list("segments/")),
    "uploads": lambda storage: list(storage.uploads("")) if isinstance(storage, Uploads) else None,
}

URLS = {
    "s3": "s3://bucket/prefix",
    "hdfs": "hdfs://127.0.0.1:{port}/tier",
    "webhdfs": "webhdfs://127.0.0.1:{port}/tier",
    "sftp": "sftp://user@127.0.0.1:{port}/tier",
    "gs": "gs://bucket/prefix",
    "abfs": "abfs://container/prefix",
}
ASKING = [(kind, call) for kind in URLS for call in CALLS if call != "uploads" or kind not in ("gs", "abfs")]
"""The clouds have no unfinished uploads that can be listed, so nothing is asked for them."""


@pytest.mark.parametrize(("kind", "call"), ASKING)
def test_each_call_ends(kind: str, call: str, silent: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    blobs = f"AccountName=a;AccountKey=aGVsbG8=;BlobEndpoint=http://127.0.0.1:{silent}/a;"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"DefaultEndpointsProtocol=http;{blobs}")
    endpoint = f"http://127.0.0.1:{silent}" if kind in ("s3", "gs") else ""
    location = LocationRecord(id=LocationId(1), url=URLS[kind].format(port=silent), endpoint_url=endpoint)
    storage, raised = Place(location, tmp_path, SETTINGS).open(), []

    def ask() -> None:
        with pytest.raises(Unavailable) as error:
            CALLS[call](storage)
        raised.append(error.value)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(LONGEST_S)
    assert len(raised) == 1
    storage.close()
