"""Offloads of a Pulsar cluster: the objects of ledgers, with their user metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from tests.engine.ledger import objects
from tests.tiering.adoption.foreign import Files
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.ledger.index_codec import encode_index
from tierfs.engine.ledger.metadata import CustomMetadata, KeyValue, LedgerInfo
from tierfs.engine.ledger.single_object import MagicWords, plan_object

TOPIC = "public/default/persistent/clicks"
BLOCK_BYTES = 300

FIRST = UUID(int=0xA0000000000040008000000000000001)

VERSION = {"s3managedledgeroffloaderformatversion": "1"}


def attempt(number: int) -> UUID:
    """One attempt of many."""
    return UUID(int=FIRST.int - 1 + number)


@dataclass(frozen=True)
class Offloaded:
    """The two objects of one ledger, as a bucket has them; or those of the streaming form, which are of no ledger."""

    ledger_id: int
    """Negative: of the streaming form."""
    data: bytes
    index: bytes
    """Empty: in front of the data."""
    uuid: UUID = FIRST
    metadata: Mapping[str, str] | None = None

    @property
    def key(self) -> str:
        return f"{self.uuid}-ledger-{self.ledger_id}" if self.ledger_id >= 0 else str(self.uuid)

    @property
    def said(self) -> Mapping[str, str]:
        return {**VERSION, "managedledgername": TOPIC} if self.metadata is None else self.metadata

    @property
    def objects(self) -> dict[str, bytes]:
        index = {f"{self.key}-index": self.index} if self.index else {}
        return {self.key: self.data, **index}


def offloaded(
    payloads: Sequence[bytes],
    ledger_id: int = 7,
    *,
    uuid: UUID = FIRST,
    metadata: Mapping[str, str] | None = None,
    custom: str = "",
    block_bytes: int = BLOCK_BYTES,
) -> Offloaded:
    """A ledger of these entries; `custom`: the managed ledger that BookKeeper's metadata names."""
    written = objects.write(payloads, block_bytes)
    named = (CustomMetadata(key="pulsar/managed-ledger", value=custom.encode()),) if custom else ()
    index = replace(written.index, metadata=replace(written.index.metadata, custom=named))
    return Offloaded(ledger_id, written.data, encode_index(index), uuid, metadata)


def without_tail(payloads: Sequence[bytes], kept: int, **options: object) -> Offloaded:
    """As Pulsar writes a ledger whose entry `kept` fits into no block: an empty block, and none after it."""
    whole = objects.closed(len(payloads), sum(map(len, payloads)))
    written = objects.write(payloads[:kept], BLOCK_BYTES)
    end = len(written.data)
    row = replace(written.index.entries[-1], first_entry_id=kept, offset=end, part_id=len(written.blocks) + 1)
    index = replace(written.index, metadata=whole, entries=(*written.index.entries, row))
    header = written.blocks[0][:128]
    empty = header[:12] + BLOCK_BYTES.to_bytes(8, "big") + kept.to_bytes(8, "big") + header[28:]
    data = written.data + empty + objects.padding(BLOCK_BYTES - 128)
    return Offloaded(7, data, encode_index(index))


Block = tuple[int, int, Sequence[bytes]]
"""Of the streaming form: the ledger, the first entry, the payloads."""


def streamed(number: int, blocks: Sequence[Block], entries: Mapping[int, int], *, shift: int = 0) -> Offloaded:
    """An object of the streaming form; `entries`: how many each ledger has; `shift`: of all but the first offset."""
    rows: dict[int, list[tuple[int, int, int]]] = {ledger_id: [] for ledger_id in entries}
    data = b""
    for part, (ledger_id, first, payloads) in enumerate(blocks, 1):
        rows[ledger_id].append((first, part, len(data) - shift * (part > 1)))
        data += objects.streaming_block(ledger_id, first, payloads, BLOCK_BYTES)
    topic = (KeyValue(key="pulsar/managed-ledger", value=TOPIC),)
    sections = [
        (LedgerInfo(ledger_id=ledger_id, entries=count, size=1, properties=topic), rows[ledger_id])
        for ledger_id, count in entries.items()
    ]
    return Offloaded(-1, data, objects.streaming_index(len(data), sections), attempt(number), VERSION)


MAGIC = MagicWords(b"INDX", b"BLCK")


def in_first_form(payloads: Sequence[bytes], ledger_id: int = 7) -> Offloaded:
    """A ledger as the first PIP says."""
    lengths = [len(one) for one in payloads]
    plan = plan_object(objects.closed(len(payloads), sum(lengths)), lengths, BLOCK_BYTES, MAGIC)
    return Offloaded(ledger_id, b"".join(plan.encode(enumerate(payloads))), b"")


def in_files(*ledgers: Offloaded) -> Files:
    """The files of a directory, with what each object says of itself beside it."""
    return dict(_files(ledgers))


def _files(ledgers: Sequence[Offloaded]) -> Iterator[tuple[str, bytes]]:
    for ledger in ledgers:
        for key, data in ledger.objects.items():
            yield key, data
            yield f"{key}.json", json.dumps({"metadata": dict(ledger.said)}).encode()


def in_memory(*ledgers: Offloaded) -> MemoryStorage:
    """A bucket."""
    storage = MemoryStorage()
    for ledger in ledgers:
        for key, data in ledger.objects.items():
            storage.put(key, BufferSource(data), metadata=ledger.said)
    return storage
