"""What one object says of itself: the fields of its name, its header, index or trailer, and its user metadata.

Whoever could write to the place chose the bytes and the name. No more is read than a header or an index, whose sizes
are capped before that; what contradicts itself is reported beside what could be read.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words import names, object_names
from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.chunkstore.sequential_read import ObjectFile
from tierfs.engine.chunkstore.validate import MARK_NAME
from tierfs.engine.journal import batch_markers, epochs, objects, reader, store_mark
from tierfs.engine.journal import names as journal_names
from tierfs.engine.ledger import blocks, index, keys
from tierfs.engine.ledger.deviations import Deviations
from tierfs.engine.ledger.metadata import split_uuid
from tierfs.engine.metadata import entries_object, frames
from tierfs.reading import compressed_objects, ledger_objects
from tierfs.tiering.backup import segment as dumps
from tierfs.tiering.packs import format as packs

# First bytes that are shown of an object of an unknown kind.
_BEGIN_BYTES = 16

_ENCODING = "zstd frames"

Fields = dict[str, Any]
UNKNOWN = "of another program"


@dataclass(slots=True)
class ObjectHeader:
    """One object, as far as it describes itself."""

    name: str
    kind: str
    stored: StoredObject
    metadata: Mapping[str, str]
    """User metadata, of the object or of the file beside it."""
    fields: Fields = field(default_factory=dict)
    """Of the name and of the header; times in milliseconds end in `_ms`."""
    parts: list[Fields] = field(default_factory=list)
    """The entries of an index, in its order."""
    wrong: list[str] = field(default_factory=list)
    """What is damaged, or contradicts something else."""


def header_of(storage: ChunkStorage, name: str) -> ObjectHeader:
    """Read what an object says of itself. Raises NotFound, and what the storage raises; damage is in `wrong`."""
    stored = storage.stat(name)
    kind = kind_of(name)
    metadata = {key.lower(): value for key, value in stored.metadata.items()}
    header = ObjectHeader(name, kind.name, stored, metadata)
    try:
        header.metadata = metadata or ledger_objects.metadata_beside(storage, name) or {}
        if isinstance(said := header.metadata.get("name"), str):
            header.fields["segment"] = _decoded(said)
        kind.read(storage, header)
    except DataLoss as exc:
        header.wrong.append(str(exc))
    return header


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """One kind of object."""

    name: str
    is_named: Callable[[str], object]
    """Whether an object of this name is of this kind."""
    read: Callable[[ChunkStorage, ObjectHeader], None]
    """Fill in fields, parts and what is wrong; raises DataLoss."""


def kind_of(name: str) -> ObjectKind:
    """Return the kind that a name tells."""
    return next(kind for kind in _KINDS if kind.is_named(name))


def known_suffix(path: str) -> str | None:
    """Return the longest end of a path that names an object of a known kind; None if there is none."""
    parts = path.split("/")
    ends = ("/".join(parts[at:]) for at in range(len(parts)))
    return next((end for end in ends if kind_of(end).name != UNKNOWN), None)


def _decoded(text: str) -> str:
    """Return a name of tierfs' metadata, which is base64url; as it stands if it is none."""
    try:
        return base64.urlsafe_b64decode(text.encode()).decode()
    except ValueError:
        return text


def _chunk(storage: ChunkStorage, header: ObjectHeader) -> None:
    match = object_names.CHUNK.fullmatch(header.name)
    assert match is not None
    start, end = int(match["start"]), int(match["end"])
    header.fields |= {"segment": match["path"], "segment_id": int(match["segment"]), "start": start, "end": end}
    header.fields |= {"store_epoch": int(match["epoch"]), "attempt": match["attempt"], "crc32c": match["crc"]}
    if match["zstd"]:
        _frames(storage, header, end - start)
    elif end - start != header.stored.length_bytes:
        header.wrong.append(f"its name says {end - start} bytes, and it has {header.stored.length_bytes}")
    said = {"segment": "segment_id", "start": "start", "end": "end", "epoch": "store_epoch", "attempt": "attempt"}
    for key, ours in {**said, "crc32c": "crc32c"}.items():
        if (value := header.metadata.get(key)) is not None and value != str(header.fields[ours]):
            header.wrong.append(f"its metadata has {key} {value}, its name has {header.fields[ours]}")


def _frames(storage: ChunkStorage, header: ObjectHeader, named_bytes: int) -> None:
    """Read the seek tables of a compressed object; what they contradict is wrong."""
    header.fields["encoding"] = _ENCODING
    try:
        compressed = compressed_objects.opened(storage, header.stored)
    except DataLoss as exc:
        header.wrong.append(str(exc))
        return
    for section in compressed.sections:
        header.parts.append(
            {
                "start": section.start_offset,
                "seek_table": section.table_offset,
                "end": section.end_offset,
                "frames": section.frame_count,
                "plain_bytes": section.plain_bytes,
            }
        )
    header.fields |= _ratio(compressed.plain_bytes, header.stored.length_bytes)
    header.fields["frames"] = sum(part["frames"] for part in header.parts)
    header.fields["sections"] = len(compressed.sections)
    if compressed.plain_bytes != named_bytes:
        header.wrong.append(f"its name says {named_bytes} bytes, and its frames have {compressed.plain_bytes}")


def _ratio(plain_bytes: int, stored_bytes: int) -> Fields:
    return {"plain_bytes": plain_bytes, "ratio": round(plain_bytes / stored_bytes, 2)}


def _pack(storage: ChunkStorage, header: ObjectHeader) -> None:
    named = packs.parse_name(header.name)
    assert named is not None
    header.fields |= {"store_epoch": named.store_epoch, "attempt": named.attempt, "crc32c": f"{named.crc32c:08x}"}
    if named.is_compressed:
        header.fields["encoding"] = _ENCODING
    contents = packs.read_pack(storage, header.name, header.stored.length_bytes)
    if contents.section is not None:
        header.fields |= _ratio(contents.payload_bytes, header.stored.length_bytes)
        header.fields["frames"] = contents.section.frame_count - 1  # the last one has the index
    read = contents.index
    header.fields |= {"store_id": read.store_id, "created_ms": read.created_ms, "entries": len(read.entries)}
    header.parts = [{**asdict(entry), "crc32c": f"{entry.crc32c:08x}"} for entry in read.entries]


def _ledger_fields(header: ObjectHeader) -> None:
    key = names.ledger_key(header.name)
    assert key is not None
    upper, lower = split_uuid(key.uuid)
    header.fields |= {"uuid": str(key.uuid), "uidMsb": upper, "uidLsb": lower, "ledger_id": key.ledger_id}
    if header.metadata:  # a copy of the bytes alone has none
        try:
            keys.check_version(header.metadata, header.name)
        except DataLoss as exc:
            header.wrong.append(str(exc))


def _ledger_data(storage: ChunkStorage, header: ObjectHeader) -> None:
    _ledger_fields(header)
    first = bytearray(min(blocks.HEADER_BYTES, header.stored.length_bytes))
    if first:
        storage.read_into(header.name, 0, memoryview(first))
    first_block = blocks.BlockHeader.parse(bytes(first), header.name)
    header.fields |= {"magic": f"{first_block.magic:08x}", "block_length": first_block.block_length}
    header.fields |= {"header_length": first_block.header_length, "first_entry_id": first_block.first_entry_id}


def _ledger_index(storage: ChunkStorage, header: ObjectHeader) -> None:
    _ledger_fields(header)
    deviations = Deviations()
    read = ledger_objects.read_index(storage, header.stored, deviations)
    header.fields["data_object_length"] = read.data_object_length
    if isinstance(read, index.LedgerIndex):
        header.fields["ledger_metadata"] = read.metadata.as_json()
        header.parts = [*_blocks(read.entries)]
    else:
        header.fields["ledgers"] = [section.info.as_json() for section in read.sections]
        for section in read.sections:
            header.parts += [{"ledger_id": section.ledger_id, **block} for block in _blocks(section.entries)]
    header.wrong += deviations.messages


def _blocks(rows: tuple[index.IndexEntry, ...]) -> Iterator[Fields]:
    return (asdict(row) for row in rows)


def _entries(storage: ChunkStorage, header: ObjectHeader) -> None:
    file = ObjectFile(storage, header.stored)
    part = entries_object.first_part(file, header.name)
    header.fields |= {"store_id": part.store_id, "segment_id": part.segment_id, "ledger": part.path}
    if part.runs:
        header.fields |= {"first_entry_id": part.runs[0].first_entry_id}


def _slot(storage: ChunkStorage, header: ObjectHeader) -> None:
    entry = reader.read_entry(storage, header.stored)
    header.fields |= {name: getattr(entry, name) for name in ("store_id", "store_epoch", "slot", "attempt")}
    header.fields |= {name: getattr(entry, name) for name in ("first_sequence", "last_sequence")}
    header.fields["changes"] = _kinds(entry.changes)


def _manifest(storage: ChunkStorage, header: ObjectHeader) -> None:
    manifest = reader.read_manifest(storage, header.stored)
    wanted = ("store_id", "store_epoch", "slot", "attempt", "last_sequence", "parts", "next_id", "written_ms")
    header.fields |= {name: getattr(manifest, name) for name in wanted}
    if manifest.levels:
        header.fields["parts"] = sum(len(level.part_crc32c) for level in manifest.levels)
        header.fields["levels"] = [level.slot for level in manifest.levels]


def _part(storage: ChunkStorage, header: ObjectHeader) -> None:
    part = objects.read_parsed(storage, header.name, frames.parse_part, header.stored.length_bytes)
    changes = [*part.changes, *(change for entry in part.entries for change in entry.changes)]
    header.fields |= {"attempt": part.attempt, "index": part.index, "changes": _kinds(changes)}


def _kinds(listed: Any) -> Fields:
    """Return how many changes there are of each kind."""
    return dict(Counter(change.WhichOneof("body") or "unknown" for change in listed))


def _mark(storage: ChunkStorage, header: ObjectHeader) -> None:
    mark = store_mark.read(storage)
    if mark is None:
        raise NotFound(f"{header.name} is missing")
    header.fields |= {"store_id": mark.store_id, "format": mark.format, "created_ms": mark.created_ms}


def _marker(storage: ChunkStorage, header: ObjectHeader) -> None:
    store_id, application, versions = batch_markers.read_marker(storage, header.name)
    header.fields |= {"store_id": store_id, "application": application, **asdict(versions)}


def _epoch(storage: ChunkStorage, header: ObjectHeader) -> None:
    header.fields["store_epoch"] = epochs.named(header.name)


def _upload(storage: ChunkStorage, header: ObjectHeader) -> None:
    header.fields["job"] = header.name.split("/")[1]


def _dump(storage: ChunkStorage, header: ObjectHeader) -> None:
    first = next(dumps.read_dump(storage, header.stored), None)
    if first is None:
        raise DataLoss(f"{header.name} is empty")
    header.fields |= {"segment": first.path, "changes": _kinds(first.changes)}
    header.fields |= {name: getattr(first, name) for name in ("store_id", "store_epoch", "sequence", "written_ms")}


def _unknown(storage: ChunkStorage, header: ObjectHeader) -> None:
    begin = bytearray(min(_BEGIN_BYTES, header.stored.length_bytes))
    if begin:
        storage.read_into(header.name, 0, memoryview(begin))
    header.fields["begins"] = begin.hex(" ")


def _is_data(name: str) -> bool:
    key = names.ledger_key(name)
    return key is not None and not key.is_index


def _is_upload(name: str) -> bool:
    return name.startswith("uploads/") and object_names.is_ours(name)


_KINDS = (
    ObjectKind("chunk", object_names.CHUNK.fullmatch, _chunk),
    ObjectKind("pack", packs.parse_name, _pack),
    ObjectKind("ledger data", _is_data, _ledger_data),
    ObjectKind("ledger index", names.ledger_key, _ledger_index),
    ObjectKind("entries of a ledger", lambda name: name.startswith(entries_object.ENTRIES_PREFIX), _entries),
    ObjectKind("journal entry", journal_names.entry_slot, _slot),
    ObjectKind("checkpoint", journal_names.checkpoint_slot, _manifest),
    ObjectKind("part of a checkpoint", journal_names.part_of, _part),
    ObjectKind("mark of a store", MARK_NAME.__eq__, _mark),
    ObjectKind("start of an epoch", epochs.named, _epoch),
    ObjectKind("commit of a distributed write", batch_markers.parse_name, _marker),
    ObjectKind("part of a distributed write", _is_upload, _upload),
    ObjectKind("dump of a segment", lambda name: name.startswith(dumps.DUMPS_PREFIX), _dump),
    ObjectKind(UNKNOWN, lambda name: True, _unknown),
)
