"""Every line is read once, with any separator and any ends of chunks, objects, blocks and splits."""

from __future__ import annotations

import bz2
import gzip
import random
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests import verbs
from tests.pipeline.reader.reading import Row, fill, offsets_of, planned, scan_lines, store_of
from tierfs.app import store as app
from tierfs.base.words.errors import DataLoss, InvalidRequest, TierfsError
from tierfs.base.words.types import MIB
from tierfs.pipeline.reader.extents import PlaceConnections
from tierfs.pipeline.reader.fetching import Request, ScanFetcher
from tierfs.pipeline.reader.line_batches import Wanted
from tierfs.pipeline.reader.line_format import BLOCK_BYTES, LineFormat, Mode, Separator
from tierfs.pipeline.reader.lines import read_lines, read_whole
from tierfs.pipeline.reader.planning import Sizes
from tierfs.pipeline.reader.selection import Selection
from tierfs.pipeline.reader.stream import Records, Stream, StreamRead

ANY = Separator()
PACKED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda data: gzip.compress(data[: len(data) // 2]) + gzip.compress(data[len(data) // 2 :]),
    ".GZIP": gzip.compress,
    ".Deflate": zlib.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: bytes(pa.compress(data, "zstd", asbytes=True)),
}
PIECES = [b"a", b"bc", b"\n", b"\r", b"\r\n", b"||", b"|", "é".encode(), b"\xff", b"\xef\xbb\xbf", b"x" * 9]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    with store_of(tmp_path / "store") as opened:
        yield opened


def lines_of(data: bytes, separator: Separator, name: str = "s") -> list[Row]:
    """Return the lines of a plain reader of the whole segment; a byte order mark is no text, alone an empty line."""
    pattern = b"\r\n|\n|\r" if separator.text is None else re.escape(separator.text)
    rows, at = [], 3 if data.startswith(b"\xef\xbb\xbf") and not re.match(pattern, data) else 0
    for end in re.finditer(pattern, data):
        rows.append((name, at, data[at : end.start()]))
        at = end.end()
    return [*rows, (name, at, data[at:])] if at < len(data) or data == b"\xef\xbb\xbf" else rows


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[app.Store]:
    with store_of(tmp_path_factory.mktemp("scan") / "store") as opened:
        yield opened


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    segments=st.lists(
        st.tuples(
            st.lists(st.sampled_from(PIECES), max_size=20).map(b"".join),
            st.sampled_from(["", "", "", *PACKED]),
            st.sampled_from([0.0, 0.5, 1.0]),
        ),
        min_size=1,
        max_size=3,
    ),
    separator=st.sampled_from([None, b"\n", b"\r\n", b"||", b"\r", b"|a"]),
    split_bytes=st.one_of(st.integers(1, 12), st.just(1000)),
    block_bytes=st.sampled_from([1, 4, 7, BLOCK_BYTES]),
    behind_bytes=st.sampled_from([1, 2, 65536]),
    decompresses=st.sampled_from([True, True, False]),
    over=st.sampled_from([None, -1, 0, 1]),
)
@example([(b"a\r\nb\r\nc", "", 0.5), (b"a\rb\r\nc\n\n\nd\r", ".gz", 0.0)], None, 1, 4, 1, True, 0)
@example([("größe\r\n日誌\n".encode(), "", 0.5), (b"", "", 0.0), (b"\r", "", 1.0)], None, 5, 1, 2, True, None)
def test_any_cuts_of_any_lines_are_the_lines(
    shared: app.Store,
    segments: list[tuple[bytes, str, float]],
    separator: bytes | None,
    split_bytes: int,
    block_bytes: int,
    behind_bytes: int,
    decompresses: bool,
    over: int | None,
) -> None:
    """Chunks, objects, partitions, blocks, compressed or not, and a limit at the longest line."""
    expected: list[Row] = []
    for number, (data, packed, cold) in enumerate(segments):
        stored = PACKED[packed](data) if packed else data
        fill(shared, stored, name=f"d/{number}{packed}", cold_bytes=int(cold * len(stored)))
        expected += lines_of(data if decompresses else stored, Separator(separator), f"d/{number}{packed}")
    longest = max((len(line) for _, _, line in expected), default=0)
    limit = {} if over is None else {"max_line_bytes": max(1, longest + over)}
    form = LineFormat(Separator(separator), decompresses=decompresses, **limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tierfs.pipeline.reader.lines.BLOCK_BYTES", block_bytes)
        patch.setattr("tierfs.pipeline.reader.lines._FIRST_BEHIND_BYTES", behind_bytes)
        try:
            if longest > limit.get("max_line_bytes", longest):
                with pytest.raises(InvalidRequest, match=f"has more than {longest + over} bytes"):
                    scan_lines(shared, form, split_bytes, Selection(("d",)))
                with pytest.raises(InvalidRequest, match=f"has more than {longest + over} bytes"):
                    offsets_of(shared, form, split_bytes, Selection(("d",)))
            else:
                found = [row for rows in scan_lines(shared, form, split_bytes, Selection(("d",))) for row in rows]
                assert sorted(found) == sorted(expected)
                offsets, count = offsets_of(shared, form, split_bytes, Selection(("d",)))
                assert sorted(offsets) == sorted(offset for _, offset, _ in expected)
                assert count == len(expected)
        finally:
            verbs.delete(shared, "d", recursive=True)


@pytest.mark.parametrize("block_bytes", [1, 2, 3])
@pytest.mark.parametrize("text", [None, b"\r\n", b"||", b"|-|"])
def test_a_line_s_end_may_lie_in_several_blocks(
    store: app.Store, text: bytes | None, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tierfs.pipeline.reader.lines.BLOCK_BYTES", block_bytes)
    data = (text or b"\r").join([b"1234", b"1", b"123", b"12345|", b"12"])
    fill(store, data)
    form = LineFormat(Separator(text))
    for split_bytes in (5, 100):
        rows = sorted(row for some in scan_lines(store, form, split_bytes, Selection()) for row in some)
        assert rows == lines_of(data, Separator(text))


def read_of_parts(
    store: app.Store, form: LineFormat, split_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[list[int], list[int]]]:
    """Of each split, the lengths of its lines, and of the requests that it made."""
    fetch, asked = ScanFetcher._fetch, list[int]()

    def counted(self: ScanFetcher, wanted: tuple[Request, bytearray]) -> object:
        asked.append(wanted[0].range.length_bytes)
        return fetch(self, wanted)

    monkeypatch.setattr(ScanFetcher, "_fetch", counted)
    place, parts = planned(store, Selection(), Sizes(max_partition_bytes=split_bytes, open_cost_bytes=1), form.reach)
    done = []
    for partition in parts:
        with ScanFetcher(place, PlaceConnections(), tuple(part.source for part in partition.parts)) as fetcher:
            lines = list(read_lines(fetcher, partition, form, Wanted(offsets=False)))
        done.append(([len(line.as_py()) for _, some in lines for line in some.values], [*asked]))
        asked.clear()
    return done


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_line_of_many_splits_is_read_once_by_that_in_which_it_begins(
    roomy: app.Store, end: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others read their own bytes, and a block in which they begin; they look for no end of it behind theirs."""
    monkeypatch.setattr("tierfs.pipeline.reader.lines._MOST_BEHIND_BYTES", 2 * MIB)
    long, split_bytes, block = 12 * MIB, MIB // 4, 1 << 17
    fill(roomy, b"a" + end + b"x" * long + end + b"b" + end, cold_bytes=6 * MIB)
    form = LineFormat(Separator(None if end == b"\n" else end), max_line_bytes=long)
    searched, complete = list[int](), Separator.complete_bytes

    def counted(self: Separator, data: bytes, *, final: bool) -> int:
        searched.append(len(data))
        return complete(self, data, final=final)

    monkeypatch.setattr(Separator, "complete_bytes", counted)
    done = read_of_parts(roomy, form, split_bytes, monkeypatch)
    assert len(done) >= 40
    assert sorted(length for lengths, _ in done for length in lengths) == [1, 1, long]
    first, others = (
        [asked for lengths, asked in done if long in lengths],
        [asked for lengths, asked in done if not lengths],
    )
    assert len(first) == 1
    assert max(first[0]) <= 2 * MIB + 2 * block
    assert sum(first[0]) <= long + 2 * MIB + 2 * block * len(first[0])
    assert others
    assert max(map(sum, others)) <= split_bytes * 5 // 4 + 2 * block
    assert sum(searched) <= 4 * long, "a line is not searched again with each block that arrives"


def test_a_line_over_the_limit_is_refused(store: app.Store) -> None:
    fill(store, b"short\n" + b"x" * 50 + b"\nshort\n")
    assert len(scan_lines(store, LineFormat(max_line_bytes=50))[0]) == 3
    with pytest.raises(InvalidRequest, match=r"segment s: a line at or after byte 6 .* more than 49 bytes"):
        scan_lines(store, LineFormat(max_line_bytes=49))
    with pytest.raises(InvalidRequest, match="a line at or after byte 6 ") as caught:
        scan_lines(store, LineFormat(max_line_bytes=49), split_bytes=8)
    assert "maxLineBytes" in str(caught.value.remedy)


@pytest.mark.parametrize("mode", [Mode.PERMISSIVE, Mode.DROPMALFORMED])
def test_a_count_refuses_what_a_read_refuses(roomy: app.Store, mode: Mode) -> None:
    fill(roomy, b"short\n" + b"x" * 50 + b"\nb\xffd\n")
    assert offsets_of(roomy, LineFormat(max_line_bytes=50, mode=mode), 100, Selection())[1] == len(
        scan_lines(roomy, LineFormat(mode=mode))[0]
    )
    with pytest.raises(InvalidRequest, match="more than 49 bytes"):
        offsets_of(roomy, LineFormat(max_line_bytes=49, mode=mode), 100, Selection())


def test_what_is_not_utf8(store: app.Store) -> None:
    fill(store, b"good\nb\xffd\nfine")
    rows = [("s", 0, b"good"), ("s", 5, b"b\xffd"), ("s", 9, b"fine")]
    assert scan_lines(store, LineFormat()) == [rows]
    assert scan_lines(store, LineFormat(mode=Mode.DROPMALFORMED)) == [[rows[0], rows[2]]]
    with pytest.raises(DataLoss, match="segment s: the line at byte 5 is not UTF-8"):
        scan_lines(store, LineFormat(mode=Mode.FAILFAST))


def test_lines_of_another_encoding_come_as_their_bytes(store: app.Store) -> None:
    fill(store, "größe\nb".encode("latin-1"))
    assert scan_lines(store, LineFormat(encoding="latin-1")) == [[("s", 0, "größe".encode()), ("s", 6, b"b")]]


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


PACKING = LineFormat(decompresses=True)
_chosen = random.Random(30)
LONG = b"".join(f"{n} {_chosen.randbytes(40).hex()}\n".encode() for n in range(30_000)) + b"no end"


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[app.Store]:
    with store_of(tmp_path / "store", chunk_bytes=100_000, object_bytes=300_000) as opened:
        yield opened


def whole_rows(store: app.Store) -> dict[str, bytes]:
    place, partitions = planned(store, Selection(), Sizes(), PACKING.reach)
    found = {}
    for partition in partitions:
        sources = tuple(part.source for part in partition.parts)
        with ScanFetcher(place, PlaceConnections(), sources) as fetcher:
            for number, lines in read_whole(fetcher, partition, PACKING):
                found[sources[number].name] = lines.values.cast("binary")[0].as_py()
    return found


@pytest.mark.parametrize("end", PACKED)
def test_long_compressed_segments_are_those_of_the_same_bytes(roomy: app.Store, end: str) -> None:
    packed = PACKED[end](LONG)
    fill(roomy, packed, name=f"s{end}", cold_bytes=len(packed) // 2)
    fill(roomy, b"plain\n", name="t")
    rows = [row for partition in scan_lines(roomy, PACKING, split_bytes=50_000) for row in partition]
    assert sorted(rows) == [*lines_of(LONG, ANY, f"s{end}"), ("t", 0, b"plain")]
    assert whole_rows(roomy) == {"t": b"plain\n", f"s{end}": LONG}


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (lambda: b"no gzip\n" * 10, DataLoss, r"segment s\.gz is truncated, or not valid gzip: "),
        (lambda: gzip.compress(LONG)[:-20], DataLoss, r"segment s\.gz is truncated, or not valid gzip: "),
        (
            lambda: gzip.compress(bytes(64 << 20)),
            InvalidRequest,
            "a line at or after byte 0 has more than 16777216 bytes",
        ),
    ],
    ids=["other", "cut", "bomb"],
)
def test_what_is_not_whole_or_fills_memory_is_an_error(
    roomy: app.Store, data: Callable[[], bytes], error: type[TierfsError], message: str
) -> None:
    fill(roomy, data(), name="s.gz", seal=True)
    with pytest.raises(error, match=message):
        scan_lines(roomy, PACKING)
    with pytest.raises(error, match=message):
        whole_rows(roomy)
    read = StreamRead("lines", Selection(), Records.LINES, PACKING)
    stream = Stream(roomy.metadata, str(roomy.path), roomy.settings.cold, PlaceConnections(), read)
    with pytest.raises(InvalidRequest, match=r"segment s\.gz has a name of a compressed file; streams do not support"):
        stream.next_offset(stream.earliest())
