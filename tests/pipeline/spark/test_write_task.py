"""One task of a write without Spark: Arrow batches in, segments out."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from tests import verbs
from tests.commands import tierfs
from tests.conftest import Bucket
from tests.pipeline.spark.written import bucket_store, read
from tierfs.app import store as app
from tierfs.app.batches import driver
from tierfs.app.batches.executor import Acknowledge, WriteJob
from tierfs.app.setup.create import init_store
from tierfs.base.words.errors import Conflict, InvalidRequest, PermissionDenied
from tierfs.engine.metadata import batches
from tierfs.engine.metadata.tables import INTENTS
from tierfs.pipeline.spark import errors, writer
from tierfs.pipeline.spark.columns import full_schema
from tierfs.pipeline.spark.row_types import RowType
from tierfs.pipeline.spark.source import TierfsDataSource
from tierfs.pipeline.spark.write_columns import Columns
from tierfs.pipeline.spark.write_options import WriteOptions
from tierfs.pipeline.spark.writer import TaskResult, begin, write_batches

TEXT = ["one", "größe\r", None, "", "日誌 𝄞"]
LINES = "one\ngröße\r\n\n\n日誌 𝄞\n".encode()


def batch(**columns: Any) -> Any:
    return pa.RecordBatch.from_pydict(columns)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    init_store(tmp_path / "store")
    with app.open_store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def job(store: app.Store) -> WriteJob:
    return driver.begin(store, None, "out")


def write(job: WriteJob, *batches: Any, **options: str) -> TaskResult:
    """Write batches as a task of an executor does."""
    columns = Columns.of(WriteOptions.of({"into": "out", **options}), from_arrow_schema(batches[0].schema))
    result: TaskResult = pickle.loads(pickle.dumps(write_batches(job, columns, batches)))
    return result


def written(store: app.Store, job: WriteJob, *batches: Any, **options: str) -> dict[str, bytes]:
    """Return the committed segments of a task's rows: below `out`, without the job's id in their names."""
    done = write(job, *batches, **options)
    driver.commit(store, job, done.uploaded, 0)
    return {one.segment.replace(job.id[:12], "ID"): read(store, one.segment) for one in done.uploaded}


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_each_row_is_a_line_and_one_without_a_value_an_empty_one(kind: Any, store: app.Store, job: WriteJob) -> None:
    first, second = (batch(value=pa.array(TEXT).cast(pa.binary()).cast(kind)) for _ in range(2))
    assert written(store, job, first, second) == {"out/part-00000-ID": 2 * LINES}


KEYED = batch(value=list("abcdefg"), key=["x", "y/z", "x", "", "/y//z", "x", "y/z"])


@pytest.mark.parametrize(
    ("batches", "options", "expected"),
    [
        ([batch(value=["a", "b"])], {"lineSep": "\r\n"}, {"part-00000-ID": b"a\r\nb\r\n"}),
        (
            [batch(content=[b"zero", b"one", None, b"two", b"three"])[1:4]],  # a slice is its own rows alone
            {"type": "bytes"},
            {"part-00000-ID": b"onetwo"},
        ),
        (
            # Two spellings of one name are one segment; each keeps its own order in a batch.
            [KEYED, KEYED[:3]],
            {"keyColumn": "key"},
            {
                "x/part-00000-ID": b"a\nc\nf\na\nc\n",
                "y/z/part-00000-ID": b"b\ng\ne\nb\n",
                "part-00000-ID": b"d\n",
            },
        ),
        (
            [batch(segment=["2031/web", "db", "2031/web"], value=["a", "b", "c"])],
            {},
            {"2031/web": b"a\nc\n", "db": b"b\n"},
        ),
        ([batch(value=pa.array([], pa.string()))], {}, {}),
    ],
    ids=["lineSep", "bytes", "keyColumn", "segment", "no rows"],
)
def test_rows_of_a_task_become_segments(
    batches: list[Any], options: dict[str, str], expected: dict[str, bytes], store: app.Store, job: WriteJob
) -> None:
    assert written(store, job, *batches, **options) == {f"out/{name}": data for name, data in expected.items()}


def test_a_row_without_a_key_is_refused_and_nothing_is_left(store: app.Store, job: WriteJob) -> None:
    rows = batch(segment=["a", None], value=["a", "b"])
    with pytest.raises(InvalidRequest, match="a row has no segment"):
        write(job, rows[:1], rows)
    assert driver.abort(store, job) == 0


def test_many_open_segments_share_one_limit_of_memory(
    store: app.Store, job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_GATHERED_BYTES", 100)
    rows = batch(segment=["large", "small", "large"], value=["x" * 60, "y", "z" * 60])
    done = write(job, rows, rows)
    assert {one.segment: [each.length for each in one.objects] for one in done.uploaded} == {
        "out/large": [122, 122],
        "out/small": [4],
    }
    driver.commit(store, job, done.uploaded, 0)
    assert read(store, "out/large") == 2 * (b"x" * 60 + b"\n" + b"z" * 60 + b"\n")
    assert read(store, "out/small") == b"y\ny\n"


@pytest.mark.parametrize(
    ("schema", "options", "refusal"),
    [
        ("value, x", {}, "need a column value and maybe segment or keyColumn, not value, x"),
        ("segment", {}, "not none"),
        ("value: long", {}, "the column value is bigint, not string or binary"),
        ("content", {"type": "bytes"}, "the column content is string, not binary"),
        ("value, segment: long", {}, "the column segment is bigint, not string"),
        ("value, key", {"keyColumn": "other"}, "no column other, which is set as keyColumn"),
        ("value", {"type": "entries"}, "rows of type entries cannot be written"),
        ("value", {"lineSep": ""}, "lineSep is empty"),
        ("value", {"type": "bytes", "lineSep": "x"}, "lineSep is not supported"),
        ("value", {"path": "b"}, "specify different directories"),
        ("value", {"endpointUrl": "http://x"}, "endpointUrl is only for reads by URL"),
        ("value", {"store": "s3://bucket/prefix"}, "s3://bucket/prefix is a URL"),
        ("value", {"into": "s3://bucket/prefix"}, "s3://bucket/prefix is a URL"),
        ("value", {"into": "a/../b"}, "'..' cannot be part"),
        ("value", {"txnAppId": "a"}, "txnVersion is missing"),
        ("value", {"txnVersion": "1"}, "txnAppId is missing"),
        ("value", {"txnAppId": "a", "txnVersion": "-1"}, "invalid value '-1' for option txnVersion"),
        ("value", {"txnAppId": "", "txnVersion": "1"}, "txnAppId has 0 bytes"),
        ("value", {"seal": "perhaps"}, "invalid value 'perhaps' for option seal"),
        ("value", {"linesep2": "x"}, "unknown option linesep2"),
    ],
)
def test_what_cannot_be_written_is_refused(schema: str, options: dict[str, str], refusal: str) -> None:
    names = [one.strip() for one in schema.split(",")]
    kinds = {"long": pa.int64()}
    fields = [pa.field(one.split(":")[0], kinds.get(one.partition(": ")[2], pa.string())) for one in names]
    with pytest.raises(InvalidRequest) as caught:
        Columns.of(WriteOptions.of({"into": "out", **options}), from_arrow_schema(pa.schema(fields)))
    assert refusal in str(caught.value)


def test_a_stream_cannot_name_its_segments() -> None:
    schema = from_arrow_schema(pa.schema([("value", pa.string()), ("segment", pa.string())]))
    with pytest.raises(InvalidRequest, match="is not supported for streams: each batch"):
        Columns.of(WriteOptions.of({"into": "out"}, stream=True), schema, stream=True)
    keyed = WriteOptions.of({"into": "out", "keyColumn": "segment", "checkpointLocation": "/c"}, stream=True)
    assert not Columns.of(keyed, schema, stream=True).named


def test_a_bucket_that_takes_no_objects_is_told_before_tasks_start(tmp_path: Path, rgw_bucket: Bucket) -> None:
    endpoint, bucket = rgw_bucket
    denied = {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject"}
    denied |= {"Resource": f"arn:aws:s3:::{bucket}/p/uploads/*"}
    with bucket_store(tmp_path / "s3", rgw_bucket) as store:
        policy = json.dumps({"Version": "2012-10-17", "Statement": [denied]})
        endpoint.client().put_bucket_policy(Bucket=bucket, Policy=policy)
        with pytest.raises(PermissionDenied):
            begin(WriteOptions.of({"into": "out", "store": str(tmp_path / "s3")}))
        with store.metadata.read() as txn:
            assert list(txn.scan(INTENTS)) == []


def test_a_version_too_old_to_tell_is_refused_before_tasks_start(
    store: app.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MAX_RANGES", 1)
    for version in (10, 20, 30, 40):
        job = driver.begin(store, "nightly", "out")
        driver.commit(store, job, (), version)
    options = {"store": str(store.path), "into": "out", "txnAppId": "nightly"}
    with pytest.raises(Conflict, match="version 5 of nightly is too old to determine whether it was committed"):
        begin(WriteOptions.of({**options, "txnVersion": "5"}))
    with store.metadata.read() as txn:
        assert txn.count(INTENTS.name) == 0
    assert begin(WriteOptions.of({**options, "txnVersion": "35"})).id, "a day between two others"


def replica(store: app.Store, tmp_path: Path) -> Path:
    assert verbs.settle(store) is None
    tierfs("-q", "replica", "--cold-dir", store.path / "cold", store=tmp_path / "other")
    return tmp_path / "other"


def superseded(store: app.Store, tmp_path: Path) -> Path:
    assert verbs.settle(store) is None
    tierfs("-q", "recover", "--cold-dir", store.path / "cold", store=tmp_path / "new")
    return store.path


def without_cold_tier(_: app.Store, tmp_path: Path) -> Path:
    tierfs("-q", "init", "--cold", "none", store=tmp_path / "local")
    return tmp_path / "local"


@pytest.mark.parametrize(
    ("kind", "refusal"),
    [
        (replica, "replica"),
        (superseded, "another store owns the bucket"),
        (without_cold_tier, "needs a cold tier"),
        (lambda _, tmp_path: tmp_path, "is not a tierfs store"),
    ],
)
def test_a_store_that_takes_nothing_says_so_before_tasks_start(
    kind: Callable[[app.Store, Path], Path], refusal: str, store: app.Store, tmp_path: Path
) -> None:
    source = TierfsDataSource({"store": str(kind(store, tmp_path)), "path": "out"})
    with pytest.raises(errors.TierfsException, match=refusal):
        source.writer(from_arrow_schema(pa.schema([("value", pa.string())])), overwrite=False)


def test_a_write_chooses_how_durable_it_has_to_be(store: app.Store) -> None:
    options = {"store": str(store.path), "into": "out"}
    assert WriteOptions.of(options).acknowledge is Acknowledge.JOURNAL
    assert WriteOptions.of({**options, "acknowledge": "LOCAL"}, stream=True).acknowledge is Acknowledge.LOCAL
    with pytest.raises(InvalidRequest, match="invalid value 'disk' for option acknowledge"):
        WriteOptions.of({**options, "acknowledge": "disk"})


@pytest.mark.parametrize(
    ("present", "refused"),
    [
        ((4, 0), "reading a stream by name needs PySpark 4.2; installed is"),
        ((4, 1), "reading a stream by name needs PySpark 4.2; installed is"),
        ((4, 0), "writing a stream by name needs PySpark 4.1; installed is"),
    ],
)
def test_an_older_spark_is_told_what_a_stream_needs(
    present: tuple[int, int], refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "SPARK", present)
    source = TierfsDataSource({"path": "out"})
    begin_stream = (
        source.streamReader if refused.startswith("reading") else partial(source.streamWriter, overwrite=False)
    )
    with pytest.raises(errors.TierfsException, match=refused) as told:
        begin_stream(full_schema(RowType.LINES, {}))
    assert "\n" not in str(told.value)
