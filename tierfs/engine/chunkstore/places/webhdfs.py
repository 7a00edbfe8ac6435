"""Files of HDFS over WebHDFS, by HTTP; also of an HttpFS gateway.

fsspec brings authentication (its options are read from its own configuration) and the session; its files append block
by block and its errors have lost their class, so bytes and requests go straight through the session here: CREATE and
OPEN are one stream each.
https://hadoop.apache.org/docs/r3.4.2/hadoop-project-dist/hadoop-hdfs/WebHDFS.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import requests
import urllib3
from requests.adapters import HTTPAdapter

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.options.config import ColdSettings
from tierfs.base.words.errors import PermissionDenied, TierfsError, Unavailable
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.places.files import FileStatus
from tierfs.engine.chunkstore.places.hdfs import CHECKED, RENAMES, meant
from tierfs.engine.chunkstore.places.steps import source_steps
from tierfs.engine.chunkstore.probe import Traits
from tierfs.engine.chunkstore.protocol import OnReceived, Source
from tierfs.engine.chunkstore.validate import STEP_BYTES

_REFUSED = frozenset({401, 403})


class WebHdfsFiles:
    """Files and JoinsFiles of HDFS over HTTP."""

    traits = Traits(create_only=RENAMES, joins="CONCAT of parts of whole blocks", checksum=CHECKED)
    resolution_ms = 1
    vendor_errors: tuple[type[Exception], ...] = (requests.RequestException, urllib3.exceptions.HTTPError)

    def __init__(self, host: str, port: int, user: str | None, *, tls: bool, settings: ColdSettings) -> None:
        """Connect to a name node, or a gateway; nothing is sent yet. `user` is None where fsspec's configuration says
        who asks.
        """
        from fsspec.implementations.webhdfs import WebHDFS

        who = {} if user is None else {"user": user}
        self._fs: Any = WebHDFS(host=host, port=port, use_https=tls, skip_instance_cache=True, **who)
        adapter = _Patient(settings)
        self._fs.session.mount("http://", adapter)
        self._fs.session.mount("https://", adapter)

    def meaning(self, error: Exception) -> type[TierfsError]:
        return Unavailable

    def status(self, path: str) -> FileStatus:
        status = self._ask("get", "GETFILESTATUS", path).json()["FileStatus"]
        if status["type"] != "FILE":
            raise FileNotFoundError(path)
        return _status(status)

    def entries(self, directory: str) -> Iterable[tuple[str, FileStatus | None]]:
        after, more = "", True
        while more:
            answer = self._ask("get", "LISTSTATUS_BATCH", directory, startAfter=after).json()["DirectoryListing"]
            page = answer["partialListing"]["FileStatuses"]["FileStatus"]
            for status in page:
                after = status["pathSuffix"]
                if after:  # else the directory is a file
                    yield after, _status(status) if status["type"] == "FILE" else None
            more = bool(page) and answer["remainingEntries"] > 0

    def read_into(self, path: str, offset: int, buffer: memoryview, progress: OnReceived | None) -> None:
        done = 0
        where = self._data_node("get", "OPEN", path, offset=offset, length=len(buffer))
        with self._fs.session.get(where, stream=True) as answer:
            _raise_for(answer, path)
            while done < len(buffer):
                read = answer.raw.readinto(buffer[done : done + STEP_BYTES])
                if not read:
                    raise Unavailable(f"{printable(path)}: {done} of {len(buffer)} bytes arrived")
                done += read
                if progress is not None:
                    progress(done)

    def write(self, path: str, source: Source, *, create_only: bool = False) -> None:
        where = self._data_node("put", "CREATE", path, overwrite="false" if create_only else "true")
        headers = {"Content-Type": "application/octet-stream"}
        body = _Body(path, source)
        answer = self._fs.session.put(where, data=body if source.length_bytes else b"", headers=headers)
        if body.error is not None:
            raise body.error
        _raise_for(answer, path)

    def rename(self, path: str, target: str, *, overwrite: bool) -> None:
        # With `renameoptions` it is FileSystem.rename(…, Options.Rename): a taken name is an error, or replaced.
        options = "OVERWRITE" if overwrite else "NONE"
        answer = self._ask("put", "RENAME", path, destination=target, renameoptions=options)
        if answer.content and answer.json().get("boolean") is False:  # a gateway that knows the old rename only
            raise FileExistsError(target)

    def join(self, path: str, others: Sequence[str]) -> None:
        self._ask("post", "CONCAT", path, sources=",".join(others))

    def make_directories(self, path: str) -> None:
        self._ask("put", "MKDIRS", path)

    def set_modified(self, path: str, modified_ms: int) -> None:
        self._ask("put", "SETTIMES", path, modificationtime=modified_ms)

    def remove(self, path: str) -> None:
        if not self._ask("delete", "DELETE", path, recursive="false").json()["boolean"]:
            raise FileNotFoundError(path)

    def remove_empty(self, path: str) -> bool:
        try:
            return bool(self._ask("delete", "DELETE", path, recursive="false").json()["boolean"])
        except (OSError, Unavailable):  # not empty
            return False

    def close(self) -> None:
        self._fs.session.close()

    def _data_node(self, method: str, op: str, path: str, **parameters: object) -> str:
        """Ask for an operation with bytes; return the URL of the data node that takes or has them."""
        location: str = self._ask(method, op, path, **parameters).headers["Location"]
        return str(self._fs._apply_proxy(location))

    def _ask(self, method: str, op: str, path: str, **parameters: object) -> requests.Response:
        """Do one request of the name node. Raises by the class of its exception."""
        url = self._fs._apply_proxy(self._fs.url + quote(path, safe="/="))
        asked = {**parameters, **self._fs.pars, "op": op}
        answer: requests.Response = self._fs.session.request(method, url, params=asked, allow_redirects=False)
        _raise_for(answer, path)
        return answer


class _Patient(HTTPAdapter):
    """Waits as long as the settings say: requests waits for ever by default."""

    def __init__(self, settings: ColdSettings) -> None:
        self._timeout = (settings.connect_timeout_s, settings.read_timeout_s)
        super().__init__(pool_connections=settings.connections, pool_maxsize=settings.connections)

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:  # type: ignore[override]
        return super().send(request, **{**options, "timeout": self._timeout})


class _Body:
    """The bytes of a source as the body of a request: its length is sent along, and each step as it is.

    After an error of the source, which is kept, zeros fill the body up: of a request that is broken off the data node
    may make the file once more after its removal.
    """

    def __init__(self, path: str, source: Source) -> None:
        self._path = path
        self._source = source
        self.error: TierfsError | None = None

    def __len__(self) -> int:
        return self._source.length_bytes

    def __iter__(self) -> Iterator[Buffer]:
        sent = 0
        try:
            for step in source_steps(self._path, self._source):
                yield step
                sent += len(step)
        except TierfsError as exc:
            self.error = exc
            while sent < len(self):
                zeros = bytes(min(STEP_BYTES, len(self) - sent))
                yield zeros
                sent += len(zeros)


def _raise_for(answer: requests.Response, path: str) -> None:
    """Raise what an answer means, if it is an error."""
    if answer.status_code < HTTPStatus.BAD_REQUEST:
        return
    try:
        remote = answer.json()["RemoteException"]
        kind, text = remote["exception"], str(remote["message"]).partition("\n")[0]
    except (ValueError, KeyError, TypeError) as exc:
        refused = PermissionDenied if answer.status_code in _REFUSED else Unavailable
        raise refused(f"{printable(path)}: HTTP {answer.status_code} {answer.reason}") from exc
    raise meant(kind, text, path)


def _status(status: Mapping[str, Any]) -> FileStatus:
    return FileStatus(status["length"], status["modificationTime"])
