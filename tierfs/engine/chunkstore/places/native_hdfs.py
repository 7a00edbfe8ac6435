"""Files of HDFS over its own protocol, by hdfs-native, without a JVM."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from fsspec.asyn import get_loop
from fsspec.config import apply_config

from tierfs.base.options.config import ColdSettings
from tierfs.base.words.errors import InvalidRequest, TierfsError, Unavailable
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.places.files import FileStatus
from tierfs.engine.chunkstore.places.hdfs import CHECKED, RENAMES, meant
from tierfs.engine.chunkstore.places.steps import fill, source_steps
from tierfs.engine.chunkstore.probe import Traits
from tierfs.engine.chunkstore.protocol import OnReceived, Source

_Result = TypeVar("_Result")

# Files listed in one visit of the loop, which costs 60 microseconds.
_LISTED_AT_ONCE = 1000

# Tries of one name node; `cold.attempts` counts those of a request. Its own 15 take minutes.
_NATIVE_ATTEMPTS = "1"

# hdfs-native raises RuntimeError with `RPCError("CLASS", "MESSAGE\\n\\tat …")` for what the name node raised.
_RPC_ERROR = re.compile(r'RPCError\("[A-Za-z0-9_.$]*?(?P<kind>[A-Za-z0-9]+)", "(?P<text>.*?)(\\n|"\))')


class NativeHdfsFiles:
    """Files of HDFS over its own protocol, without a JVM. Name services are those of HADOOP_CONF_DIR.

    hdfs-native waits for ever for a name node or a data node that is silent, and a thread that waits in it hears no
    signal. So requests run on fsspec's loop, each step within a time-out; one that is given up is dropped there.
    """

    traits = Traits(create_only=RENAMES, checksum=CHECKED)
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
                f"hdfs://{shown} contains no name node and no configured name service",
                remedy="write hdfs://HOST:PORT/PATH, or set HADOOP_CONF_DIR to the directory of hdfs-site.xml",
            ) from exc

    def meaning(self, error: Exception) -> type[TierfsError]:
        return Unavailable

    def status(self, path: str) -> FileStatus:
        status = self._ask(path, lambda client: self._step(client.get_file_info(path)))
        if status.isdir:
            raise FileNotFoundError(path)
        return FileStatus(status.length, status.modification_time)

    def entries(self, directory: str) -> Iterable[tuple[str, FileStatus | None]]:
        listing = self._client.list_status(directory, False)
        while listed := self._ask(directory, lambda _: self._some(listing, _LISTED_AT_ONCE, lambda _: 1)):
            for status in listed:
                name = status.path.removeprefix(directory).strip("/")
                if name:  # else the directory is a file
                    yield name, None if status.isdir else FileStatus(status.length, status.modification_time)

    def read_into(self, path: str, offset: int, buffer: memoryview, progress: OnReceived | None) -> None:
        async def read(client: Any) -> list[bytes]:
            file = await self._step(client.read(path))
            held = max(0, min(len(buffer), len(file) - offset))
            return await self._some(file.read_range_stream(offset, held), held, len) if held else []

        fill(path, b"".join(self._ask(path, read)), buffer, progress)

    def write(self, path: str, source: Source, *, create_only: bool = False) -> None:
        from hdfs_native import WriteOptions

        options = WriteOptions(overwrite=not create_only, create_parent=True)
        file = self._ask(path, lambda client: self._step(client.create(path, options)))
        for step in source_steps(path, source):
            # Of any buffer but bytes it takes each byte as an object (measured: 15 MB/s).
            self._ask(path, partial(self._answer, file.write(bytes(step))))
        self._ask(path, lambda _: self._step(file.close()))

    def rename(self, path: str, target: str, *, overwrite: bool) -> None:
        self._ask(path, lambda client: self._step(client.rename(path, target, overwrite)))

    def make_directories(self, path: str) -> None:
        self._ask(path, lambda client: self._step(client.mkdirs(path, 0o755, True)))

    def set_modified(self, path: str, modified_ms: int) -> None:
        self._ask(path, lambda client: self._step(client.set_times(path, modified_ms, modified_ms)))

    def remove(self, path: str) -> None:
        if not self._ask(path, lambda client: self._step(client.delete(path, False))):
            raise FileNotFoundError(path)

    def remove_empty(self, path: str) -> bool:
        try:
            return bool(self._ask(path, lambda client: self._step(client.delete(path, False))))
        except Unavailable:  # not empty
            return False

    def close(self) -> None:
        """Nothing is open."""

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
                    f"{self._shown} does not respond",
                    remedy="check the name node and the data nodes, and the network to them",
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


@contextmanager
def _map_java_errors(path: str) -> Iterator[None]:
    """Raise by the class of the name node's exception. Raises Unavailable for other errors of hdfs-native."""
    try:
        yield
    except RuntimeError as exc:
        match = _RPC_ERROR.search(str(exc))
        if match is None:
            raise Unavailable(f"{printable(path)}: {str(exc).partition(chr(10))[0]}") from exc
        raise meant(match["kind"], match["text"], path) from exc
