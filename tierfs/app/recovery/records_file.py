"""RecordsFile: results of a recovery, one for each segment, in a file without a name: memory does not hold them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Generic, TypeVar
from weakref import finalize

T = TypeVar("T")


class RecordsFile(Collection[T], Generic[T]):
    """Records in the order in which they were added. They are gone with this object."""

    def __init__(self, directory: Path, decode: Callable[[dict[str, Any]], T]) -> None:
        """`decode` makes a record of its fields."""
        self._file = TemporaryFile(dir=directory)  # noqa: SIM115
        finalize(self, self._file.close)
        self._decode = decode
        self._count = 0

    def add(self, record: Any) -> None:
        """Add a record, a dataclass of what JSON holds. Raises OSError for a full disk."""
        self._file.write(json.dumps(asdict(record)).encode() + b"\n")
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        """Read the records; one reader at a time, and none is added meanwhile."""
        self._file.seek(0)
        for line in self._file:
            yield self._decode(json.loads(line))

    def __contains__(self, record: object) -> bool:
        return any(each == record for each in self)
