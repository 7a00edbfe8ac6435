"""The options of writes, `df.write.format("tierfs")` and `df.writeStream.format("tierfs")`, checked."""

from __future__ import annotations

from collections.abc import Mapping

from tierfs.app.batches.executor import Acknowledge
from tierfs.app.sources import split_url
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names, units
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.engine.metadata import batches
from tierfs.pipeline.spark.options import Given, StoreOptions
from tierfs.pipeline.spark.row_types import RowType

# Options for reaching a bucket by its URL; a store has its own.
_READ_ONLY = ("endpointUrl", "region", "profile")

_TRANSACTION = ("txnAppId", "txnVersion")
_WRITE_OPTIONS = ("store", "path", "into", "type", "lineSep", "keyColumn", "seal", "acknowledge", *_TRANSACTION)
# Spark passes its own options on, the last two.
_STREAM_OPTIONS = (*(name for name in _WRITE_OPTIONS if name != "txnVersion"), "checkpointLocation", "queryName")

_TYPES = (RowType.LINES, RowType.BYTES)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """All options of a write."""

    where: StoreOptions
    into: str
    """Canonical name of the directory."""
    row_type: RowType
    separator: bytes
    """Follows each row."""
    key_column: str | None
    seal: bool
    application: str | None
    version: int | None
    """Of a batch; streams number theirs themselves."""
    acknowledge: Acknowledge

    @classmethod
    def of(cls, options: Mapping[str, str], *, stream: bool = False) -> WriteOptions:
        """Parse the options of Spark. Raises InvalidRequest naming the wrong one."""
        for name in _READ_ONLY:
            if name.lower() in (given.lower() for given in options):
                raise InvalidRequest(
                    f"the option {name} is only for reads by URL; a write uses the bucket of its store",
                    remedy="omit it",
                )
        given = Given(options, _STREAM_OPTIONS if stream else _WRITE_OPTIONS)
        where, into = _into(given)
        row_type = given.choice("type", RowType, RowType.LINES)
        if row_type not in _TYPES:
            raise InvalidRequest(f"rows of type {row_type} cannot be written", remedy="set type to lines or bytes")
        application, version = _transaction(given, stream=stream)
        return cls(
            where=where,
            into=into,
            row_type=row_type,
            separator=_separator(given, row_type),
            key_column=given.text("keyColumn"),
            seal=given.text("seal") is None or given.flag("seal"),
            application=application,
            version=version,
            acknowledge=given.choice("acknowledge", Acknowledge, Acknowledge.JOURNAL),
        )


def _into(given: Given) -> tuple[StoreOptions, str]:
    """Return the store and the directory: of `save(PATH)`, which may be a tierfs:// URL, or of the option into."""
    path, into = given.text("path"), given.text("into")
    if (path is None) == (into is None):
        wrong = (
            "no target directory given"
            if path is None
            else "save(PATH) and the option into specify different directories"
        )
        raise InvalidRequest(
            wrong,
            remedy='use one of them: .save("DIRECTORY") or .option("into", "DIRECTORY"); '
            "in SQL, INSERT INTO TABLE WITH (store = 'STORE', into = 'DIRECTORY') SELECT …; / is the root",
        )
    store, name = split_url(path or into or "")
    store = store or given.text("store")
    url = next((text for text in (name, store or "") if "://" in text), None)
    if url is not None:
        raise InvalidRequest(
            f"{printable(url)} is a URL; a store opened by its URL is read-only",
            remedy="use the directory of the store that owns the bucket: .option('store', DIRECTORY)",
        )
    named = given.text("store")
    if named is not None and named != store:
        raise InvalidRequest(
            f"the path is in the store {store}, but the option store is {named}",
            remedy="set either the path or the option store, not both",
        )
    return StoreOptions(store, None, None, None), names.join(names.split(name))


def _separator(given: Given, row_type: RowType) -> bytes:
    text = given.text("lineSep")
    if row_type is RowType.BYTES:
        if text is not None:
            raise InvalidRequest(
                "lineSep is not supported for rows of type bytes", remedy="omit it, or write type lines"
            )
        return b""
    if text == "":
        raise InvalidRequest("lineSep is empty", remedy="set one, or omit it: lines then end with LF")
    return (text or "\n").encode()


def _transaction(given: Given, *, stream: bool) -> tuple[str | None, int | None]:
    application, text = given.text("txnAppId"), given.text("txnVersion")
    if stream or (application is None and text is None):
        if application is not None:
            batches.check(application, 0)
        return application, None
    if application is None or text is None:
        missing = "txnAppId" if application is None else "txnVersion"
        raise InvalidRequest(f"{missing} is missing", remedy="set both txnAppId and txnVersion, or neither")
    version = units.decimal(text)
    if version is None:
        raise InvalidRequest(
            f"invalid value {printable(text)!r} for option txnVersion", remedy="expected a whole number, at least 0"
        )
    batches.check(application, version)
    return application, version
