"""The objects that Pulsar wrote: pulsar/README.md lists them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tierfs.engine.ledger.block_reader import LedgerEntry
from tierfs.engine.ledger.deviations import Deviations
from tierfs.engine.ledger.index import LedgerIndex, StreamingIndex
from tierfs.engine.ledger.index_codec import decode_index

PULSAR = Path(__file__).parent / "pulsar"


@dataclass(frozen=True)
class Golden:
    """The two objects of one offload."""

    data_path: Path
    data: bytes
    index_bytes: bytes

    @property
    def index_path(self) -> Path:
        return self.data_path.with_name(f"{self.data_path.name}-index")

    def plain_index(self) -> LedgerIndex:
        """The index of format 1; it deviates in nothing."""
        deviations = Deviations()
        index = decode_index(self.index_bytes, "i", deviations)
        assert isinstance(index, LedgerIndex)
        assert deviations.messages == []
        return index

    def streaming_index(self) -> StreamingIndex:
        """The index of the streaming form; it deviates in nothing."""
        deviations = Deviations()
        index = decode_index(self.index_bytes, "i", deviations)
        assert isinstance(index, StreamingIndex)
        assert deviations.messages == []
        return index


def goldens(directory: str, pattern: str = "*") -> Iterator[Golden]:
    """The offloads in a directory."""
    for index_path in sorted((PULSAR / directory).glob(f"{pattern}-index")):
        data_path = index_path.with_name(index_path.name.removesuffix("-index"))
        yield Golden(data_path, data_path.read_bytes(), index_path.read_bytes())


def golden(directory: str, ledger_id: int) -> Golden:
    """The one offload of a ledger."""
    (found,) = goldens(directory, f"*-ledger-{ledger_id}")
    return found


def made_of(directory: str) -> dict[int, list[str]]:
    """SHA-256 of the entries that each ledger was made of."""
    ledgers: dict[int, list[str]] = defaultdict(list)
    for line in (PULSAR / f"{directory}.entries").read_text().splitlines():
        ledger_id, entry_id, _, digest = line.split()
        assert int(entry_id) == len(ledgers[int(ledger_id)])
        ledgers[int(ledger_id)].append(digest)
    return ledgers


def digests(entries: list[LedgerEntry]) -> list[str]:
    return [sha256(entry.payload).hexdigest() for entry in entries]


def user_metadata(path: Path) -> dict[str, str]:
    """The user metadata of the object in a file."""
    found: dict[str, str] = json.loads(path.with_name(f"{path.name}.json").read_text())["metadata"]
    return found
