"""Every line is read once, with any separator and any ends of chunks, objects and splits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import verbs
from tests.scan.scanning import Row, fill, scan_lines, store_of
from tierfs.app import store as app
from tierfs.errors import DataLoss, InvalidRequest
from tierfs.scan.line_format import LineFormat, Mode, Separator
from tierfs.scan.selection import Selection

ANY = Separator()
LF = Separator(b"\n")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    with store_of(tmp_path / "store") as opened:
        yield opened


def lines_of(data: bytes, separator: Separator, name: str = "s") -> list[Row]:
    """Return the lines of a plain reader of the whole segment."""
    pattern = b"\r\n|\n|\r" if separator.text is None else re.escape(separator.text)
    rows, at = [], 0
    for end in re.finditer(pattern, data):
        rows.append((name, at, data[at : end.start()]))
        at = end.end()
    return [*rows, (name, at, data[at:])] if at < len(data) else rows


def assert_lines(store: app.Store, data: bytes, separator: Separator, split_bytes: int) -> None:
    found = [row for rows in scan_lines(store, LineFormat(separator), split_bytes) for row in rows]
    assert sorted(found, key=lambda row: row[1]) == lines_of(data, separator)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[app.Store]:
    with store_of(tmp_path_factory.mktemp("scan") / "store") as opened:
        yield opened


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.lists(
        st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"||", b"|", "é".encode(), b"\xff"]), max_size=30
    ),
    separator=st.sampled_from([None, b"\n", b"\r\n", b"||", b"\r", b"|a"]),
    split_bytes=st.integers(1, 12),
    cold=st.integers(0, 40),
)
def test_every_line_once(
    shared: app.Store, data: list[bytes], separator: bytes | None, split_bytes: int, cold: int
) -> None:
    text = b"".join(data)
    fill(shared, text, cold_bytes=min(cold, len(text)))
    try:
        assert_lines(shared, text, Separator(separator), split_bytes)
    finally:
        verbs.delete(shared, "s", recursive=False)


@pytest.mark.parametrize("split_bytes", [1, 2, 3, 5, 100])
@pytest.mark.parametrize(
    "data", [b"", b"\n", b"\r", b"\r\n", b"a", b"a\r\nb\r\nc", b"a\rb\r\nc\n\n\nd\r", "größe\r\n日誌\n".encode()]
)
def test_ends_of_lines(store: app.Store, data: bytes, split_bytes: int) -> None:
    fill(store, data, cold_bytes=len(data) // 2)
    assert_lines(store, data, ANY, split_bytes)


def test_lines_longer_than_a_block(store: app.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tierfs.scan.lines.BLOCK_BYTES", 4)
    monkeypatch.setattr("tierfs.scan.lines._FIRST_BEHIND_BYTES", 2)
    data = b"0123456789\r\nabcdefghijklmnop\rq\n" * 3
    fill(store, data, cold_bytes=30)
    for split_bytes in (1, 7, 11, 40):
        assert_lines(store, data, ANY, split_bytes)


def test_many_segments_share_a_partition(store: app.Store) -> None:
    for number in range(20):
        fill(store, b"%d\nx" % number, name=f"d/{number:02}", cold_bytes=2 if number % 2 else 0)
    partitions = scan_lines(store, LineFormat(), 1000, Selection(("d",)))
    assert len(partitions) == 1
    wanted = [row for number in range(20) for row in lines_of(b"%d\nx" % number, ANY, f"d/{number:02}")]
    assert sorted(partitions[0]) == wanted


def test_a_byte_order_mark_is_not_text(store: app.Store) -> None:
    fill(store, b"\xef\xbb\xbfa\nb")
    assert scan_lines(store, LineFormat()) == [[("s", 3, b"a"), ("s", 5, b"b")]]


def test_a_line_over_the_limit_is_refused(store: app.Store) -> None:
    fill(store, b"short\n" + b"x" * 50 + b"\nshort\n")
    assert len(scan_lines(store, LineFormat(max_line_bytes=50))[0]) == 3
    with pytest.raises(InvalidRequest, match=r"segment s: a line at or after byte 6 .* more than 49 bytes"):
        scan_lines(store, LineFormat(max_line_bytes=49))
    with pytest.raises(InvalidRequest, match="a line at or after byte 6 ") as caught:
        scan_lines(store, LineFormat(max_line_bytes=49), split_bytes=8)
    assert "maxLineBytes" in str(caught.value.remedy)


def test_what_is_not_utf8(store: app.Store) -> None:
    fill(store, b"good\nb\xffd\nfine")
    rows = [("s", 0, b"good"), ("s", 5, b"b\xffd"), ("s", 9, b"fine")]
    assert scan_lines(store, LineFormat()) == [rows]
    assert scan_lines(store, LineFormat(mode=Mode.DROPMALFORMED)) == [[rows[0], rows[2]]]
    with pytest.raises(DataLoss, match="segment s: the line at byte 5 is not UTF-8"):
        scan_lines(store, LineFormat(mode=Mode.FAILFAST))


def test_another_encoding(store: app.Store) -> None:
    fill(store, "größe\nb".encode("latin-1"))
    assert scan_lines(store, LineFormat(encoding="latin-1")) == [[("s", 0, "größe".encode()), ("s", 6, b"b")]]


def test_separators_that_overlap_themselves_are_not_split(store: app.Store) -> None:
    assert not Separator(b"||").may_be_split
    assert Separator(b"\r\n").may_be_split
    fill(store, b"a|||b||c")
    assert scan_lines(store, LineFormat(Separator(b"||")), 2) == [[("s", 0, b"a"), ("s", 3, b"|b"), ("s", 7, b"c")]]


def test_damage_is_read_from_the_other_copy_and_told_where_there_is_none(store: app.Store) -> None:
    fill(store, b"first\nsecond\n", seal=True)
    verbs.offload(store, "s")
    whole = scan_lines(store, LineFormat())
    for file in store.paths.chunks.glob("*/*"):
        file.chmod(0o600)
        file.write_bytes(b"damaged"[: file.stat().st_size])
    assert scan_lines(store, LineFormat()) == whole, "the cold copy"
    verbs.evict(store, "s", force=True)
    for file in (path for path in store.paths.cold.rglob("*chunk-*") if path.is_file()):
        data = file.read_bytes()
        file.chmod(0o600)
        file.write_bytes(data.replace(b"fir", b"FIR"))
    with pytest.raises(DataLoss, match=r"segment s: .* does not match its checksums"):
        scan_lines(store, LineFormat())
