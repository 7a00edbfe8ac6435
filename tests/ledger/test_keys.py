"""Keys and user metadata: the results of Pulsar's parsers, and versions that are refused by name."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ledger.objects import DEADLINE_MS
from tierfs.errors import DataLoss, InvalidRequest
from tierfs.ledger import keys
from tierfs.ledger.keys import Role

ID = "0123abcd-4567-89ab-cdef-0123456789ab"


def test_keys() -> None:
    uuid = UUID(ID.upper())
    assert keys.data_key(uuid, 123) == f"{ID}-ledger-123"
    assert keys.index_key(uuid, 123) == f"{ID}-ledger-123-index"
    assert keys.streaming_data_key(uuid) == ID
    assert keys.streaming_index_key(uuid) == f"{ID}-index"


@pytest.mark.parametrize(
    ("name", "ledger_id"),
    [
        (None, None),
        ("", None),
        ("-ledger-", None),
        ("something", None),
        ("-ledger-index", None),
        (f"{ID}-ledger-123", 123),
        (f"{ID}-ledger-123-index", 123),
        (f"{ID}-index", None),
        (f"{ID}-ledger-123-index-index", None),
        (f"{ID}-ledger-1-ledger-2", None),
        (f"{ID}-ledger-12 ", None),
        (f"{ID}-ledger-1_2", None),
        (f"{ID}-ledger-٣", None),
        (f"{ID}-ledger-{2**63 - 1}", 2**63 - 1),
        (f"{ID}-ledger-{2**63}", None),
        (f"{ID}-ledger-{'9' * 1000}", None),
        (f"{ID}-ledger-{'9' * 5000}", None),
    ],
)
def test_parse_ledger_id(name: str | None, ledger_id: int | None) -> None:
    """DataBlockUtilsTest.parseLedgerIdTest, and names that others may choose."""
    assert keys.parse_ledger_id(name) == ledger_id


@pytest.mark.parametrize(
    ("name", "ledger_id", "uuid"),
    [
        (None, None, None),
        (None, 123124, None),
        ("foo", None, None),
        ("-ledger-123124", 123124, None),
        ("-ledger-123124-index", 123124, None),
        ("something123124", 123124, None),
        (f"{ID}-ledger-123124", 123124, ID),
        (f"{ID}-ledger-123124-index", 123124, ID),
        (f"{ID}-ledger-123124", 123125, None),
        (f"{ID}-ledger-123124", 123, None),
        (f"{ID}-ledger-123124x", 123124, None),
        (f"{ID}-index", 123124, None),
    ],
)
def test_parse_context_uuid(name: str | None, ledger_id: int | None, uuid: str | None) -> None:
    """DataBlockUtilsTest.parseContextUuidTest; unlike Pulsar's, ledger 123 is not found in a name of 123124."""
    assert keys.parse_context_uuid(name, ledger_id) == uuid


@settings(deadline=DEADLINE_MS)
@given(st.uuids(), st.integers(0, 2**63 - 1))
def test_keys_are_parsed(uuid: UUID, ledger_id: int) -> None:
    for key in (keys.data_key(uuid, ledger_id), keys.index_key(uuid, ledger_id)):
        assert keys.parse_ledger_id(key) == ledger_id
        assert keys.parse_context_uuid(key, ledger_id) == str(uuid)


@settings(deadline=DEADLINE_MS)
@given(st.text(), st.integers())
def test_any_name_is_parsed(name: str, ledger_id: int) -> None:
    keys.parse_ledger_id(name)
    keys.parse_ledger_id(f"-ledger-{name}")
    keys.parse_context_uuid(name, ledger_id)


def test_user_metadata() -> None:
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
