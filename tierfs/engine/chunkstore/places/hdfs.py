"""Files of HDFS: over WebHDFS by HTTP (also of an HttpFS gateway), or over its own protocol by hdfs-native.

Both write the same files, so that a place may be reached by either. fsspec's WebHDFS brings authentication (its options
are read from fsspec's own configuration) and the session; its files append block by block and its errors have lost
their class, so bytes and requests go straight through the session here: CREATE and OPEN are one stream each.
https://hadoop.apache.org/docs/r3.4.2/hadoop-project-dist/hadoop-hdfs/WebHDFS.html
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote

import requests
import urllib3
from fsspec.asyn import get_loop
from fsspec.config import apply_config
from requests.adapters import HTTPAdapter

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.options.config import ColdSettings
from tierfs.base.words.errors import InvalidRequest, PermissionDenied, StorageFull, TierfsError, Unavailable
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.places.files import FileStatus, fill, source_steps
from tierfs.engine.chunkstore.probe import Traits
from tierfs.engine.chunkstore.protocol import OnReceived, Source
from tierfs.engine.chunkstore.validate import STEP_BYTES

_Result = TypeVar("_Result")

# Files listed in one visit of the loop, which costs 60 microseconds.
_LISTED_AT_ONCE = 1000

_RENAMES = "a rename that refuses a taken name"
# Tries of one name node; `cold.attempts` counts those of a request. Its own 15 take minutes.
_NATIVE_ATTEMPTS = "1"
_CHECKED = "HDFS sums each block on its way between data nodes and at rest"

# DFSUtilClient.isValidName of Hadoop refuses a colon in a name.
_ENCODED = str.maketrans({"%": "%25", ":": "%3A"})


def encode(name: str) -> str:
    """Return a name that HDFS takes."""
    return name.translate(_ENCODED)


def decode(name: str) -> str:
    """Return the name that `encode` made one of HDFS of."""
    return name.replace("%3A", ":").replace("%25", "%")


class WebHdfsFiles:
    """Files of HDFS over HTTP."""

    traits = Traits(create_only=_RENAMES, joins="CONCAT of parts of whole blocks", checksum=_CHECKED)
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
        """See Files.meaning."""
        return Unavailable

    def status(self, path: str) -> FileStatus:
        """See Files.status."""
        status = self._ask("get", "GETFILESTATUS", path).json()["FileStatus"]
        if status["type"] != "FILE":
            raise FileNotFoundError(path)
        return _status(status)

    def entries(self, directory: str) -> Iterable[tuple[str, FileStatus | None]]:
        """See Files.entries."""
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
        """See Files.read_into."""
        done = 0
        where = self._data_node("get", "OPEN", path, offset=offset, length=len(buffer))
        with self._fs.session.get(where, stream=True) as answer:
            _raise_for(answer, path)
            while done < len(buffer):
                read = answer.raw.readinto(buffer[done : done + STEP_BYTES])
                if not read:
                    raise Unavailable(f"{printable(path)}: {done} of {len(buffer)} bytes came")
                done += read
                if progress is not None:
                    progress(done)

    def write(self, path: str, source: Source, *, create_only: bool = False) -> None:
        """See Files.write."""
        where = self._data_node("put", "CREATE", path, overwrite="false" if create_only else "true")
        headers = {"Content-Type": "application/octet-stream"}
        body = _Body(path, source)
        answer = self._fs.session.put(where, data=body if source.length_bytes else b"", headers=headers)
        if body.error is not None:
            raise body.error
        _raise_for(answer, path)

    def rename(self, path: str, target: str, *, overwrite: bool) -> None:
        """See Files.rename."""
        # With `renameoptions` it is FileSystem.rename(…, Options.Rename): a taken name is an error, or replaced.
        options = "OVERWRITE" if overwrite else "NONE"
        answer = self._ask("put", "RENAME", path, destination=target, renameoptions=options)
        if answer.content and answer.json().get("boolean") is False:  # a gateway that knows the old rename only
            raise FileExistsError(target)

    def join(self, path: str, others: Sequence[str]) -> None:
        """See JoinsFiles.join."""
        self._ask("post", "CONCAT", path, sources=",".join(others))

    def make_directories(self, path: str) -> None:
        """See Files.make_directories."""
        self._ask("put", "MKDIRS", path)

    def set_modified(self, path: str, modified_ms: int) -> None:
        """See Files.set_modified."""
        self._ask("put", "SETTIMES", path, modificationtime=modified_ms)

    def remove(self, path: str) -> None:
        """See Files.remove."""
        if not self._ask("delete", "DELETE", path, recursive="false").json()["boolean"]:
            raise FileNotFoundError(path)

    def remove_empty(self, path: str) -> bool:
        """See Files.remove_empty."""
        try:
            return bool(self._ask("delete", "DELETE", path, recursive="false").json()["boolean"])
        except (OSError, Unavailable):  # not empty
            return False

    def close(self) -> None:
        """See Files.close."""
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


class NativeHdfsFiles:
    """Files of HDFS over its own protocol, without a JVM. Name services are those of HADOOP_CONF_DIR.

    hdfs-native waits for ever for a name node or a data node that is silent, and a thread that waits in it hears no
    signal. So requests run on fsspec's loop, each step within a time-out; one that is given up is dropped there.
    """

    traits = Traits(create_only=_RENAMES, checksum=_CHECKED)
    resolution_ms = 1
    vendor_errors: tuple[type[Exception], ...] = ()

    def __init__(self, host: str, port: int | None, settings: ColdSettings) -> None:
        """Name a name node or name service; nothing is sent yet. Raises InvalidRequest for one that is not known."""
        from hdfs_native.fsspec import HdfsFileSystem

        shown = printable(host)
        self._shown = f"hdfs://{shown}" if port is None else f"hdfs://{shown}:{port}"
        self._url = f"hdfs://{host}" if port is None else f"hdfs://{host}:{port}"
        self._silence_s = settings.connect_timeout_s + settings.read_timeout_s
        self._options: dict[str, str] = apply_config(
            HdfsFileSystem, {"dfs.client.failover.max.attempts": _NATIVE_ATTEMPTS}
        )
        self._loop = get_loop()
        try:
            self._client = self._connected()
        except RuntimeError as exc:  # nothing is asked yet: a name without a port has to be a name service's
            raise InvalidRequest(
                f"hdfs://{shown} names no name node and no name service that is configured",
                remedy="write hdfs://HOST:PORT/PATH, or set HADOOP_CONF_DIR to the directory of hdfs-site.xml",
            ) from exc

    def meaning(self, error: Exception) -> type[TierfsError]:
        """See Files.meaning."""
        return Unavailable

    def status(self, path: str) -> FileStatus:
        """See Files.status."""
        status = self._ask(path, lambda client: self._step(client.get_file_info(path)))
        if status.isdir:
            raise FileNotFoundError(path)
        return FileStatus(status.length, status.modification_time)

    def entries(self, directory: str) -> Iterable[tuple[str, FileStatus | None]]:
        """See Files.entries."""
        listing = self._client.list_status(directory, False)
        while listed := self._ask(directory, lambda _: self._some(listing, _LISTED_AT_ONCE, lambda _: 1)):
            for status in listed:
                name = status.path.removeprefix(directory).strip("/")
                if name:  # else the directory is a file
                    yield name, None if status.isdir else FileStatus(status.length, status.modification_time)

    def read_into(self, path: str, offset: int, buffer: memoryview, progress: OnReceived | None) -> None:
        """See Files.read_into."""

        async def read(client: Any) -> list[bytes]:
            file = await self._step(client.read(path))
            held = max(0, min(len(buffer), len(file) - offset))
            return await self._some(file.read_range_stream(offset, held), held, len) if held else []

        fill(path, b"".join(self._ask(path, read)), buffer, progress)

    def write(self, path: str, source: Source, *, create_only: bool = False) -> None:
        """See Files.write."""
        from hdfs_native import WriteOptions

        options = WriteOptions(overwrite=not create_only, create_parent=True)
        file = self._ask(path, lambda client: self._step(client.create(path, options)))
        for step in source_steps(path, source):
            # Of any buffer but bytes it takes each byte as an object (measured: 15 MB/s).
            self._ask(path, partial(self._answer, file.write(bytes(step))))
        self._ask(path, lambda _: self._step(file.close()))

    def rename(self, path: str, target: str, *, overwrite: bool) -> None:
        """See Files.rename."""
        self._ask(path, lambda client: self._step(client.rename(path, target, overwrite)))

    def make_directories(self, path: str) -> None:
        """See Files.make_directories."""
        self._ask(path, lambda client: self._step(client.mkdirs(path, 0o755, True)))

    def set_modified(self, path: str, modified_ms: int) -> None:
        """See Files.set_modified."""
        self._ask(path, lambda client: self._step(client.set_times(path, modified_ms, modified_ms)))

    def remove(self, path: str) -> None:
        """See Files.remove."""
        if not self._ask(path, lambda client: self._step(client.delete(path, False))):
            raise FileNotFoundError(path)

    def remove_empty(self, path: str) -> bool:
        """See Files.remove_empty."""
        try:
            return bool(self._ask(path, lambda client: self._step(client.delete(path, False))))
        except Unavailable:  # not empty
            return False

    def close(self) -> None:
        """See Files.close."""

    def _connected(self) -> Any:
        from hdfs_native import AsyncClient

        return AsyncClient(self._url, self._options)

    def _ask(self, path: str, request: Callable[[Any], Coroutine[Any, Any, _Result]]) -> _Result:
        """Make one request and return its answer. Raises Unavailable for a silence, and the errors of HDFS."""
        with _map_java_errors(path):
            try:
                return asyncio.run_coroutine_threadsafe(request(self._client), self._loop).result()
            except TimeoutError as exc:
                self._client = self._connected()  # the connection of before may be one to a host that is gone
                raise Unavailable(
                    f"{self._shown} is silent", remedy="check the name node and the data nodes, and the network to them"
                ) from exc

    async def _answer(self, answer: Awaitable[_Result], client: Any) -> _Result:
        return await self._step(answer)

    async def _step(self, answer: Awaitable[_Result]) -> _Result:
        """Await a part of a request. Raises TimeoutError for a silence."""
        return await asyncio.wait_for(answer, self._silence_s)

    async def _some(
        self, answers: AsyncIterator[_Result], most: int, size_of: Callable[[_Result], int]
    ) -> list[_Result]:
        """Await the next parts of an answer, so many or their end."""
        got, size = [], 0
        while size < most:
            try:
                part = await self._step(anext(answers))
            except StopAsyncIteration:
                break
            got.append(part)
            size += size_of(part)
        return got


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


# Exceptions of the name node by their meaning. Others may pass: safe mode, a standby, a lease, a lost data node.
_MEANINGS: Mapping[str, type[Exception]] = {
    "FileNotFoundException": FileNotFoundError,
    "FileAlreadyExistsException": FileExistsError,
    "AlreadyBeingCreatedException": FileExistsError,  # another writer has not closed it yet
    "ParentNotDirectoryException": NotADirectoryError,
    "AccessControlException": PermissionDenied,
    "SecurityException": PermissionDenied,
    "AuthenticationException": PermissionDenied,
    "QuotaExceededException": StorageFull,
    "DSQuotaExceededException": StorageFull,
    "NSQuotaExceededException": StorageFull,
    "InvalidPathException": InvalidRequest,
    "IllegalArgumentException": InvalidRequest,
    "UnsupportedOperationException": InvalidRequest,
}
_REFUSED = frozenset({401, 403})


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
    raise _meant(kind, text, path)


# hdfs-native raises RuntimeError with `RPCError("CLASS", "MESSAGE\\n\\tat …")` for what the name node raised.
_RPC_ERROR = re.compile(r'RPCError\("[A-Za-z0-9_.$]*?(?P<kind>[A-Za-z0-9]+)", "(?P<text>.*?)(\\n|"\))')


@contextmanager
def _map_java_errors(path: str) -> Iterator[None]:
    """Raise by the class of the name node's exception. Raises Unavailable for other errors of hdfs-native."""
    try:
        yield
    except RuntimeError as exc:
        match = _RPC_ERROR.search(str(exc))
        if match is None:
            raise Unavailable(f"{printable(path)}: {str(exc).partition(chr(10))[0]}") from exc
        raise _meant(match["kind"], match["text"], path) from exc


def _meant(kind: str, text: str, path: str) -> Exception:
    """Return the error for an exception of the name node."""
    meant = _MEANINGS.get(kind, Unavailable)
    return meant(f"{printable(path)}: {kind}: {text}" if issubclass(meant, TierfsError) else path)


def _status(status: Mapping[str, Any]) -> FileStatus:
    return FileStatus(status["length"], status["modificationTime"])
