"""Records of BookKeeper and Pulsar: golden bytes, presence that survives, unknown fields, and damage."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.ledger import independent
from tests.engine.ledger.objects import DEADLINE_MS
from tierfs.base.words import names
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.names import LedgerKey
from tierfs.engine.ledger import keys
from tierfs.engine.ledger.keys import Role
from tierfs.engine.ledger.metadata import (
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
def test_records_have_their_golden_bytes(record: ProtobufRecord, golden: str) -> None:
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


def test_uuids_are_two_signed_numbers() -> None:
    assert INFO.offload is not None
    assert INFO.offload.uuid == UUID_7
    assert INFO.offload.segments[0].uuid == UUID(int=(1 << 64) + 2)
    assert split_uuid(UUID_7) == (-(2**63) + 1, 2**63 - 1)
    assert OffloadContext().uuid is None


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


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(replace(METADATA, password=b"secret"))


ID = "0123abcd-4567-89ab-cdef-0123456789ab"


def test_keys_of_objects_are_those_of_pulsar() -> None:
    uuid = UUID(ID.upper())
    assert keys.data_key(uuid, 123) == f"{ID}-ledger-123"
    assert keys.index_key(uuid, 123) == f"{ID}-ledger-123-index"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("", None),
        ("-ledger-", None),
        ("something", None),
        ("-ledger-index", None),
        ("something123124", None),
        (f"{ID}-ledger-123", LedgerKey(UUID(ID), 123, is_index=False)),
        (f"{ID}-ledger-123-index", LedgerKey(UUID(ID), 123, is_index=True)),
        (f"{ID}", LedgerKey(UUID(ID), None, is_index=False)),
        (f"{ID}-index", LedgerKey(UUID(ID), None, is_index=True)),
        (f"{ID}-ledger-123x", None),
        (f"{ID}-ledger-123-index-index", None),
        (f"{ID}-ledger-1-ledger-2", None),
        (f"{ID}-ledger-12 ", None),
        (f"{ID}-ledger-1_2", None),
        (f"{ID}-ledger-٣", None),
        (f"{ID}-ledger-{2**63 - 1}", LedgerKey(UUID(ID), 2**63 - 1, is_index=False)),
        (f"{ID}-ledger-{2**63}", None),
        (f"{ID}-ledger-{'9' * 1000}", None),
        (f"{ID}-ledger-{'9' * 5000}", None),
    ],
)
def test_the_parts_of_a_key_are_parsed(name: str, key: LedgerKey | None) -> None:
    """DataBlockUtilsTest.parseLedgerIdTest and parseContextUuidTest, and names that others may choose."""
    assert names.ledger_key(name) == key


@settings(deadline=DEADLINE_MS)
@given(st.uuids(), st.integers(0, 2**63 - 1))
def test_keys_are_parsed(uuid: UUID, ledger_id: int) -> None:
    assert names.ledger_key(keys.data_key(uuid, ledger_id)) == LedgerKey(uuid, ledger_id, is_index=False)
    assert names.ledger_key(keys.index_key(uuid, ledger_id)) == LedgerKey(uuid, ledger_id, is_index=True)


def test_user_metadata_are_those_of_pulsar() -> None:
    assert keys.user_metadata(Role.INDEX, "public/default/persistent/topic", "0.1", "abc", "cluster") == {
        "s3managedledgeroffloaderformatversion": "1",
        "role": "index",
        "managedledgername": "public/default/persistent/topic",
        "s3managedledgeroffloadersoftwareversion": "0.1",
        "s3managedledgeroffloadersoftwaregitsha": "abc",
        "pulsarclustername": "cluster",
    }
    assert "pulsarclustername" not in keys.user_metadata(Role.DATA, "a", "b", "c")


@pytest.mark.parametrize("name", ["tür", "a\nb"])
def test_text_that_a_header_cannot_carry_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="managedledgername cannot be"):
        keys.user_metadata(Role.DATA, name, "0.1", "abc")


@pytest.mark.parametrize("key", ["s3managedledgeroffloaderformatversion", "S3ManagedLedgerOffloaderFormatVersion"])
def test_the_version_that_is_read(key: str) -> None:
    """Pulsar's reader needs no other key."""
    keys.check_version({key: "1"}, "o")


@pytest.mark.parametrize("version", ["-12344", "12346", "2", "", "1\n"])
def test_other_versions_are_refused_by_name(version: str) -> None:
    """testReadUnknownDataVersion, testReadUnknownIndexVersion: 1 + 12345 and 1 - 12345."""
    with pytest.raises(DataLoss) as error:
        keys.check_version({keys.VERSION_KEY: version}, "o")
    shown = version.replace("\n", "\\n")
    assert str(error.value) == f"o has format version {shown}, this tierfs reads 1"


def test_an_object_without_a_version_is_refused() -> None:
    with pytest.raises(DataLoss, match="o has no format version"):
        keys.check_version({"role": "data"}, "o")
