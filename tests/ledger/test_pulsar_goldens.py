"""Objects that Pulsar's own offloader wrote: read, written again byte by byte, or reported as lost."""

from __future__ import annotations

from collections import defaultdict
from uuid import UUID

import pytest

from tests.ledger.objects import payloads_of, read
from tests.ledger.pulsar_goldens import digests, golden, goldens, made_of, user_metadata
from tierfs.errors import DataLoss
from tierfs.ledger import keys
from tierfs.ledger.block_reader import BlockSpan, LedgerEntry, read_entries, scan_blocks
from tierfs.ledger.blocks import Deviations, encode_blocks, plan_blocks
from tierfs.ledger.index import LedgerIndex, encode_index
from tierfs.ledger.metadata import CustomMetadata, DigestType, Ensemble, LedgerInfo, LedgerMetadata, LedgerState
from tierfs.types import MIB

WHOLE = (1, 2, 3, 4, 5, 6, 7, 8, 2**63 - 1)
LOST = {11: 2, 12: 1, 13: 2}
"""Ledgers that Pulsar lost the tail of, and how many entries are left."""


@pytest.mark.parametrize("ledger_id", WHOLE)
def test_the_entries_that_pulsar_wrote_are_read(ledger_id: int) -> None:
    ledger, deviations = golden("whole", ledger_id), Deviations()
    index = ledger.plain_index()
    index.check(len(ledger.data), "o", deviations)
    entries, differs = read(ledger.data, index.spans())
    assert digests(entries) == made_of("whole")[ledger_id]
    assert deviations.messages + differs == []


@pytest.mark.parametrize("ledger_id", WHOLE)
def test_the_entries_are_read_without_the_index(ledger_id: int) -> None:
    ledger, deviations = golden("whole", ledger_id), Deviations()
    scanned = scan_blocks([ledger.data], len(ledger.data), "o", deviations)
    assert digests([entry for _, entry in scanned]) == made_of("whole")[ledger_id]
    assert deviations.messages == []


@pytest.mark.parametrize("ledger_id", WHOLE)
def test_the_bytes_that_pulsar_wrote_are_written(ledger_id: int) -> None:
    """Both objects, byte by byte."""
    ledger = golden("whole", ledger_id)
    index = ledger.plain_index()
    payloads = payloads_of(read(ledger.data, index.spans())[0])
    block_bytes = index.entries[1].offset if len(index.entries) > 1 else 64 * MIB
    plans = plan_blocks(list(map(len, payloads)), block_bytes)
    assert b"".join(encode_blocks(enumerate(payloads), plans)) == ledger.data
    assert encode_index(LedgerIndex.of_plans(index.metadata, plans)) == ledger.index_bytes


@pytest.mark.parametrize("ledger_id", WHOLE)
def test_keys_and_user_metadata_are_those_of_pulsar(ledger_id: int) -> None:
    ledger = golden("whole", ledger_id)
    attempt = keys.parse_context_uuid(ledger.index_path.name, ledger_id)
    assert attempt is not None
    assert keys.parse_ledger_id(ledger.index_path.name) == ledger_id
    assert keys.data_key(UUID(attempt), ledger_id) == ledger.data_path.name
    assert keys.index_key(UUID(attempt), ledger_id) == ledger.index_path.name
    for role, path in ((keys.Role.DATA, ledger.data_path), (keys.Role.INDEX, ledger.index_path)):
        written = keys.user_metadata(role, "public/default/persistent/topic", "4.0.8", "0000000", "standalone")
        assert user_metadata(path) == written


def test_paddings_of_every_length() -> None:
    """Ledger 4: each block of 400 bytes but the last one ends with one byte of padding more than the one before."""
    index = golden("whole", 4).plain_index()
    assert [span.length_bytes for span in index.spans()] == [400] * 40 + [360]


def test_every_field_of_the_metadata() -> None:
    assert golden("whole", 7).plain_index().metadata == LedgerMetadata(
        write_quorum=3,
        ensemble_size=3,
        length=220,
        last_entry_id=5,
        state=LedgerState.CLOSED,
        ensembles=(
            Ensemble(first_entry_id=0, members=("b1:3181", "b2:3181", "b3:3181")),
            Ensemble(first_entry_id=3, members=("b4:3181", "b2:3181", "b3:3181")),
        ),
        digest_type=DigestType.CRC32C,
        ack_quorum=2,
        created_ms=1_700_000_000_000,
        custom=(
            CustomMetadata(key="application", value=b"pulsar"),
            CustomMetadata(key="component", value=b"managed-ledger"),
            CustomMetadata(key="pulsar/managed-ledger", value=b"public/default/persistent/topic"),
            CustomMetadata(key="ü", value=b"\0\xff"),
        ),
    )


def until_loss(data: bytes, spans: list[BlockSpan]) -> tuple[list[LedgerEntry], str]:
    """Return the entries before a loss, and its error."""
    entries: list[LedgerEntry] = []
    try:
        for entry in read_entries([data], spans, "o", Deviations()):
            entries.append(entry)
    except DataLoss as exc:
        return entries, str(exc)
    pytest.fail("nothing is lost")


@pytest.mark.parametrize(("ledger_id", "left"), LOST.items())
def test_a_lost_tail_is_told(ledger_id: int, left: int) -> None:
    """Pulsar reported success: the data object has a block that its index does not count, and no entries in it."""
    ledger, deviations = golden("lost", ledger_id), Deviations()
    index = ledger.plain_index()
    index.check(len(ledger.data), "o", deviations)
    assert deviations.messages == ["o has 600 bytes, its index names 300"]
    entries, lost = until_loss(ledger.data, index.spans())
    assert digests(entries) == made_of("lost")[ledger_id][:left]
    assert lost == f"o: entry {left} is missing: the block at 300 has 0 bytes"


def test_the_streaming_form() -> None:
    """Four ledgers in two objects; blocks with paddings, and blocks that are more than full after an empty entry."""
    found: dict[int, list[LedgerEntry]] = defaultdict(list)
    for segment in goldens("streaming"):
        index = segment.streaming_index()
        assert index.data_object_length == len(segment.data)
        for section in index.sections:
            entries, deviations = read(segment.data, index.spans(section.ledger_id))
            assert deviations == []
            found[section.ledger_id] += entries
    assert {ledger_id: digests(sorted(entries)) for ledger_id, entries in found.items()} == made_of("streaming")
    assert [entry.entry_id for entry in sorted(found[22])] == [0, 1, 2, 3, 4, 5, 6]


def test_records_in_the_streaming_form() -> None:
    """Of closed ledgers, as in Pulsar's metadata store; for an open one the offloader fills in the entries alone."""
    found = [section.info for segment in goldens("streaming") for section in segment.streaming_index().sections]
    assert sorted(found, key=lambda info: (info.ledger_id, info.entries)) == [
        LedgerInfo(ledger_id=21, entries=11, size=750, closed_ms=1_700_000_000_000),
        LedgerInfo(ledger_id=22, entries=3, size=12, closed_ms=1_700_000_000_000),
        LedgerInfo(ledger_id=22, entries=7, size=123, closed_ms=1_700_000_000_000),
        LedgerInfo(ledger_id=23, entries=1, size=0, closed_ms=1_700_000_000_000),
        LedgerInfo(ledger_id=24, entries=2),
    ]


def test_keys_and_user_metadata_of_the_streaming_form() -> None:
    """Neither role nor managed ledger is there, unlike in format 1."""
    for segment in goldens("streaming"):
        attempt = UUID(segment.data_path.name)
        assert keys.streaming_data_key(attempt) == segment.data_path.name
        assert keys.streaming_index_key(attempt) == segment.index_path.name
        for path in (segment.data_path, segment.index_path):
            metadata = user_metadata(path)
            keys.check_version(metadata, path.name)
            assert metadata.keys() == {
                keys.VERSION_KEY,
                keys.SOFTWARE_VERSION_KEY,
                keys.SOFTWARE_COMMIT_KEY,
                keys.CLUSTER_KEY,
            }


@pytest.mark.parametrize(("ledger_id", "left"), [(31, 6), (32, 1)])
def test_blocks_that_are_more_than_full_end_the_reading(ledger_id: int, left: int) -> None:
    """Their lengths are short by the first entry, so the objects are longer than their indexes say. Pulsar loops."""
    (segment,) = [found for found in goldens("overfull") if found.streaming_index().sections[0].ledger_id == ledger_id]
    index = segment.streaming_index()
    assert len(segment.data) > index.data_object_length
    entries, lost = until_loss(segment.data, index.spans(ledger_id))
    assert digests(entries) == made_of("overfull")[ledger_id][:left]
    assert "runs past the end of the block at 0" in lost
