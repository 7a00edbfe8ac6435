"""A program that opens a store once, by one of the ways in, and reads segments as often as it is asked to.

    python -m tests.reality.reading mount|python|fsspec|spark STORE MOUNTPOINT

A line of its input is a request, one of its output the answer, both JSON: the names to read, and what each way of
reading has of each, in base64, or the error of them all. Names under `kept` are read by handles that were opened with
the first request for them too: these show the bytes of that moment, or the file as it is now. An empty request lets go
of all handles, as a mount that ended does.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

Answer = tuple[str, str, bytes]
"""How it was read, name, bytes."""

FRESH, KEPT = "fresh", "kept"


class Way(Protocol):
    """One way in."""

    def read(self, names: Sequence[str]) -> Iterator[Answer]:
        """Read whole segments, as they are now."""
        ...

    def open(self, name: str) -> Any:
        """Return a binary file, or None where the way has none."""
        ...


class Mount:
    """Files under a mountpoint."""

    def __init__(self, store: str, mountpoint: str) -> None:
        self._mountpoint = Path(mountpoint)

    def read(self, names: Sequence[str]) -> Iterator[Answer]:
        for name in names:
            yield FRESH, name, (self._mountpoint / name).read_bytes()

    def open(self, name: str) -> BinaryIO:
        return (self._mountpoint / name).open("rb", buffering=0)


class Python:
    """A store that is opened by a program."""

    def __init__(self, store: str, mountpoint: str) -> None:
        import tierfs

        self._store = tierfs.open_store(store)

    def read(self, names: Sequence[str]) -> Iterator[Answer]:
        for name in names:
            yield FRESH, name, self._store.segment(name).read()

    def open(self, name: str) -> Any:
        return self._store.open(name)


class Fsspec:
    """A file system of fsspec."""

    def __init__(self, store: str, mountpoint: str) -> None:
        import fsspec

        self._files = fsspec.filesystem("tierfs", store=store)

    def read(self, names: Sequence[str]) -> Iterator[Answer]:
        for name in names:
            yield FRESH, name, self._files.cat_file(name)

    def open(self, name: str) -> Any:
        return self._files.open(name)


class Spark:
    """A session that reads by path through the mount, and by name."""

    def __init__(self, store: str, mountpoint: str) -> None:
        from tests.pipeline.spark.conftest import SETTINGS, start

        self._store, self._mountpoint = store, mountpoint
        self._session = start("local[2]", Path(tempfile.mkdtemp(dir=Path(store).parent)), SETTINGS)

    def read(self, names: Sequence[str]) -> Iterator[Answer]:
        if not names:
            return
        read = self._session.read
        blocks = read.format("tierfs").options(store=self._store, type="bytes").load(list(names))
        parts: dict[str, bytes] = dict.fromkeys(names, b"")
        for row in blocks.select("segment", "offset", "content").orderBy("segment", "offset").collect():
            parts[row["segment"]] += bytes(row["content"])
        yield from ((FRESH, name, data) for name, data in parts.items())
        files = read.format("binaryFile").load([f"{self._mountpoint}/{name}" for name in names])
        for row in files.select("path", "content").collect():
            yield FRESH, row["path"].split(f"{self._mountpoint}/")[1], bytes(row["content"])

    def open(self, name: str) -> None:
        return None


WAYS: dict[str, Callable[[str, str], Way]] = {"mount": Mount, "python": Python, "fsspec": Fsspec, "spark": Spark}


class Handles:
    """Files that stay open."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._files: dict[str, Any] = {}

    def read(self, names: Sequence[str]) -> Iterator[Answer]:
        """Read through those that are open for these names, and open the others."""
        for name in names:
            file = self._files[name] if name in self._files else self._files.setdefault(name, self._way.open(name))
            if file is not None:
                file.seek(0)
                yield KEPT, name, file.read()

    def close(self) -> None:
        """Let go of them, also where the other side is gone."""
        for file in self._files.values():
            if file is not None:
                file.close()
        self._files.clear()


def main() -> None:
    kind, store, mountpoint = sys.argv[1:]
    way = WAYS[kind](store, mountpoint)
    handles = Handles(way)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if not request:
                handles.close()
            read = [*way.read(request.get("names", ())), *handles.read(request.get("kept", ()))]
            answer: object = [(how, name, base64.b64encode(data).decode()) for how, name, data in read]
        except Exception:
            answer = traceback.format_exc()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
