"""Lines of compressed segments: those of the same bytes that are not compressed, at any place of a cut."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scan.scanning import fill, planned, rows_of, scan_lines, store_of
from tests.scan.test_lines import PACKED
from tests.spark.reading import lines_of
from tierfs.app import store as app
from tierfs.errors import DataLoss, InvalidRequest
from tierfs.scan.extents import PlaceConnections
from tierfs.scan.fetching import ScanFetcher
from tierfs.scan.line_format import BLOCK_BYTES, LineFormat
from tierfs.scan.lines import read_whole
from tierfs.scan.planning import Sizes
from tierfs.scan.selection import Selection
from tierfs.scan.stream import Records, Stream, StreamRead

FORM = LineFormat(decompresses=True)


DATA = {
    "long": b"".join(f"{n} {random.Random(n).randbytes(40).hex()}\n".encode() for n in range(30_000)) + b"no end",
    "block": b"x" * (BLOCK_BYTES - 1) + b"\n",
    "over a block": b"x" * BLOCK_BYTES + b"\ny",
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    with store_of(tmp_path / "store", chunk_bytes=100_000, object_bytes=300_000) as opened:
        yield opened


@pytest.mark.parametrize("end", PACKED)
@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
def test_lines_are_those_of_the_same_bytes(store: app.Store, end: str, data: bytes) -> None:
    packed = PACKED[end](data)
    fill(store, packed, name=f"s{end}", cold_bytes=len(packed) // 2)
    fill(store, b"plain\n", name="t")
    partitions = scan_lines(store, FORM, split_bytes=50_000)
    rows = [row for partition in partitions for row in partition if row[0] != "t"]
    assert [value for _, _, value in rows] == lines_of(data)
    assert all(data.startswith(value, offset) for _, offset, value in rows)
    assert [row[2] for partition in partitions for row in partition if row[0] == "t"] == [b"plain"]
    whole = whole_rows(store, FORM)
    assert whole == {"t": b"plain\n", f"s{end}": data}


def whole_rows(store: app.Store, form: LineFormat) -> dict[str, bytes]:
    place, partitions = planned(store, Selection(), Sizes(), form.reach)
    found = {}
    for partition in partitions:
        sources = tuple(part.source for part in partition.parts)
        with ScanFetcher(place, PlaceConnections(), sources) as fetcher:
            for number, lines in read_whole(fetcher, partition, form):
                found[sources[number].name] = lines.values.cast("binary")[0].as_py()
    return found


def test_members_one_after_the_other_are_one_text(store: app.Store) -> None:
    fill(store, gzip.compress(b"a\nb") + gzip.compress(b"c\nd\n"), name="s.gz")
    assert [row[2] for row in scan_lines(store, FORM)[0]] == [b"a", b"bc", b"d"]


@pytest.mark.parametrize("bad", [b"no gzip\n" * 10, gzip.compress(DATA["long"])[:-20]], ids=["other", "cut"])
def test_what_is_not_whole_is_an_error(store: app.Store, bad: bytes) -> None:
    fill(store, bad, name="s.gz")
    with pytest.raises(DataLoss, match=r"segment s\.gz is not whole, or no gzip: "):
        scan_lines(store, FORM)
    with pytest.raises(DataLoss, match=r"segment s\.gz is not whole, or no gzip: "):
        whole_rows(store, FORM)


def test_a_bomb_fills_no_memory(store: app.Store) -> None:
    fill(store, gzip.compress(b"\0" * (64 << 20)), name="s.gz")
    place, (partition,) = planned(store, Selection(), Sizes(), FORM.reach)
    with pytest.raises(InvalidRequest, match="a line at or after byte 0 has more than 16777216 bytes"):
        rows_of(place, partition, FORM)
    with pytest.raises(InvalidRequest, match="a line at or after byte 0 has more than 16777216 bytes"):
        whole_rows(store, FORM)


def test_a_stream_names_what_it_cannot_read(store: app.Store) -> None:
    fill(store, gzip.compress(b"a\n"), name="s.gz", seal=True)
    read = StreamRead("lines", Selection(), Records.LINES, FORM)
    stream = Stream(store.metadata, str(store.path), store.settings.cold, PlaceConnections(), read)
    with pytest.raises(InvalidRequest, match=r"segment s\.gz is compressed by its name, and a stream reads it as it"):
        stream.next_offset(stream.earliest(), None)


def test_without_the_option_bytes_are_lines_as_they_are(store: app.Store) -> None:
    packed = gzip.compress(b"a\nb\n", mtime=0)
    fill(store, packed, name="s.gz")
    assert b"".join(row[2] for row in scan_lines(store, LineFormat())[0]) == b"".join(lines_of(packed))
