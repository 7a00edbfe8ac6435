"""Records of BookKeeper and Pulsar: golden bytes, presence that survives, unknown fields, and damage."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ledger import independent
from tests.ledger.objects import DEADLINE_MS
from tierfs.errors import DataLoss, InvalidRequest
from tierfs.ledger.metadata import (
    CustomMetadata,
    DigestType,
    DriverMetadata,
    Ensemble,
    KeyValue,
    LedgerInfo,
    LedgerMetadata,
    LedgerState,
    OffloadContext,
    OffloadSegment,
    ProtobufRecord,
    join_uuid,
    split_uuid,
)

METADATA = LedgerMetadata(
    write_quorum=3,
    ensemble_size=3,
    length=100,
    last_entry_id=5000,
    state=LedgerState.CLOSED,
    ensembles=(Ensemble(first_entry_id=0, members=("127.0.0.1:3181", "127.0.0.2:3181")),),
    digest_type=DigestType.CRC32C,
    ack_quorum=2,
    created_ms=0,
    custom=(CustomMetadata(key="key7", value=b"value7"), CustomMetadata(key="key1", value=b"value1")),
)
"""Of OffloadIndexTest, in the order in which Java's map may hand out the properties."""

METADATA_GOLDEN = (
    "0803 1003 1864 208827 2803"
    "3222 0a0e3132372e302e302e313a33313831 0a0e3132372e302e302e323a33313831 1000"
    "3803 4802 5000"
    "5a0e 0a046b657937 120676616c756537"
    "5a0e 0a046b657931 120676616c756531"
)

UUID_7 = UUID("80000000-0000-0001-7fff-ffffffffffff")

INFO = LedgerInfo(
    ledger_id=7,
    entries=0,
    size=0,
    closed_ms=1000,
    offload=OffloadContext(
        uuid_upper=-(2**63) + 1,
        uuid_lower=2**63 - 1,
        complete=False,
        local_deleted=True,
        offloaded_ms=9,
        driver=DriverMetadata(name="aws-s3", properties=(KeyValue(key="bucket", value="b"),)),
        segments=(OffloadSegment(uuid_upper=1, uuid_lower=2, complete=True, end_entry_id=0),),
    ),
    properties=(KeyValue(key="a", value=""),),
)

INFO_GOLDEN = (
    "0807 1000 1800 20e807"
    "2a3c 0881808080808080808001 10ffffffffffffffff7f 1800 2001 2809"
    "3215 0a06 6177732d7333 120b 0a066275636b6574 120162"
    "3a08 0801 1002 1801 3000"
    "3205 0a0161 1200"
)


@pytest.mark.parametrize(
    ("record", "golden"), [(METADATA, METADATA_GOLDEN), (INFO, INFO_GOLDEN)], ids=["LedgerMetadataFormat", "LedgerInfo"]
)
def test_golden_bytes(record: ProtobufRecord, golden: str) -> None:
    """Fields ascend, zeros that are present are written, and custom properties keep their order."""
    assert record.encode().hex() == golden.replace(" ", "")
    assert type(record).decode(bytes.fromhex(golden), "o") == record


def test_absent_and_zero_differ() -> None:
    absent = LedgerMetadata(write_quorum=0, ensemble_size=0, length=0, last_entry_id=None, state=LedgerState.OPEN)
    zero = replace(absent, last_entry_id=0, ack_quorum=0, created_ms=0)
    assert absent.encode().hex() == "0800100018002801"
    assert zero.encode().hex() == "08001000180020002801" + "48005000"
    for record in (absent, zero):
        assert LedgerMetadata.decode(record.encode(), "o") == record
        assert record.readable_last_entry_id == 0


def test_unknown_fields_survive_a_rewrite() -> None:
    """Such as BookKeeper's newer field 12, in the record and in one inside it."""
    ensemble = bytes.fromhex("1000") + bytes.fromhex("6001")
    data = bytes.fromhex("0803100318642803") + b"\x32\x04" + ensemble + bytes.fromhex("6005")
    record = LedgerMetadata.decode(data, "o")
    assert record.encode() == data
    assert independent.fields(replace(record, length=5).encode()) == {
        1: [3],
        2: [3],
        3: [5],
        5: [3],
        6: [ensemble],
        12: [5],
    }


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        (LedgerMetadata, "ff", "cannot be decoded"),
        (LedgerMetadata, "", "lacks a required field"),
        (LedgerMetadata, "100318642803", "lacks a required field"),
        (LedgerMetadata, "080318642803", "lacks a required field"),
        (LedgerMetadata, "080310032803", "lacks a required field"),
        (LedgerMetadata, "080310031864", "lacks a required field"),
        (LedgerMetadata, "0803100318642809", "lacks a required field"),
        (LedgerMetadata, "0803100318642803 3200", "lacks a required field"),
        (LedgerInfo, "1001", "lacks a required field"),
        (LedgerInfo, "0801 2a 02 3200", "lacks a required field"),
    ],
)
def test_damage_is_refused(kind: type[ProtobufRecord], data: str, message: str) -> None:
    """Fields 1, 2, 3 and 5 must be there; an unknown state is none."""
    with pytest.raises(DataLoss, match=f"^o: its {kind.__name__} {message}"):
        kind.decode(bytes.fromhex(data), "o")


def test_an_unknown_digest_is_kept() -> None:
    data = bytes.fromhex("0803100318642803" + "3809")
    record = LedgerMetadata.decode(data, "o")
    assert record.digest_type is None
    assert record.encode() == data


def test_text_that_is_not_utf8_is_shown_as_java_shows_it() -> None:
    record = CustomMetadata.decode(bytes.fromhex("0a01ff 1201ff"), "o")
    assert record == CustomMetadata(key="\ufffd", value=b"\xff")


@pytest.mark.parametrize(
    "bad", [{"length": 2**63}, {"write_quorum": 2**31}, {"ensembles": (Ensemble(first_entry_id=2**63),)}]
)
def test_numbers_that_do_not_fit_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest, match="LedgerMetadata cannot be encoded"):
        replace(METADATA, **bad).encode()


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(replace(METADATA, password=b"secret"))


def test_uuids_are_two_signed_numbers() -> None:
    assert INFO.offload is not None
    assert INFO.offload.uuid == UUID_7
    assert INFO.offload.segments[0].uuid == UUID(int=(1 << 64) + 2)
    assert split_uuid(UUID_7) == (-(2**63) + 1, 2**63 - 1)
    assert OffloadContext().uuid is None


@settings(deadline=DEADLINE_MS)
@given(st.uuids())
def test_uuids_survive(uuid: UUID) -> None:
    assert join_uuid(*split_uuid(uuid)) == uuid
    OffloadContext(uuid_upper=split_uuid(uuid)[0], uuid_lower=split_uuid(uuid)[1]).encode()


def test_the_last_entry_of_an_info() -> None:
    assert LedgerInfo(ledger_id=1, entries=5001).last_entry_id == 5000
    assert LedgerInfo(ledger_id=1).last_entry_id == -1


numbers = st.none() | st.integers(-(2**63), 2**63 - 1)
metadata = st.builds(
    LedgerMetadata,
    write_quorum=st.integers(-(2**31), 2**31 - 1),
    ensemble_size=st.integers(-(2**31), 2**31 - 1),
    length=st.integers(-(2**63), 2**63 - 1),
    last_entry_id=numbers,
    state=st.sampled_from(LedgerState),
    ensembles=st.lists(
        st.builds(Ensemble, first_entry_id=st.integers(0, 99), members=st.lists(st.text(max_size=5)).map(tuple)),
        max_size=3,
    ).map(tuple),
    digest_type=st.none() | st.sampled_from(DigestType),
    password=st.none() | st.binary(max_size=5),
    ack_quorum=st.none() | st.integers(-(2**31), 2**31 - 1),
    created_ms=numbers,
    custom=st.lists(
        st.builds(CustomMetadata, key=st.none() | st.text(max_size=5), value=st.none() | st.binary(max_size=5)),
        max_size=3,
    ).map(tuple),
)


@settings(deadline=DEADLINE_MS)
@given(metadata)
def test_what_is_encoded_is_decoded(record: LedgerMetadata) -> None:
    data = record.encode()
    assert LedgerMetadata.decode(data, "o") == record
    fields = independent.fields(data)
    assert fields[3] == [record.length]
    assert list(fields) == sorted(fields)
