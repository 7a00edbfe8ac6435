"""The options of a read by `format("tierfs")`, checked: an unknown one is refused, so a misspelt one never passes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from typing import TypeVar
from zoneinfo import ZoneInfo

from tierfs.app.sources import split_url
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words import names, units
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import MIB, ReadPriority
from tierfs.pipeline.reader.line_format import LineFormat, Mode, Separator, require_encoding
from tierfs.pipeline.reader.planning import Sizes
from tierfs.pipeline.reader.selection import Selection, Tail, conditions_of
from tierfs.pipeline.spark import catalog
from tierfs.pipeline.spark.archived import ArchiveWait, WhenArchived
from tierfs.pipeline.spark.named_positions import (
    EARLIEST,
    LATEST,
    NamedBounds,
    NamedNumbers,
    json_object,
    offset_number,
    saved_offset,
)
from tierfs.pipeline.spark.row_types import RowForm, RowType

E = TypeVar("E", bound=StrEnum)

# Parts of option names that would carry a key.
_CREDENTIALS = ("access", "secret", "token", "password", "credential")

STORE_OPTIONS = ("store", "endpointUrl", "region", "profile")
STREAM_OPTIONS = ("maxBytesPerTrigger", "maxFilesPerTrigger", "minBytesPerTrigger", "maxTriggerDelay")

_READ_OPTIONS = (
    *STORE_OPTIONS,
    *("path", "paths", "type", "recursiveFileLookup", "pathGlobFilter", "modifiedBefore", "modifiedAfter"),
    *("basePath", "partitionFilter", "hiddenFiles", "timeZone", "ignoreMissingFiles"),
    *("lineSep", "wholetext", "compression", "encoding", "mode", "maxLineBytes", "blockBytes", "readPriority", "tail"),
    *("maxPartitionBytes", "openCostInBytes", "minPartitions", "archived", "archivedTimeout", "thawDays"),
    *("startOffset", "endOffset", "startEntry", "endEntry", "startingTimestamp", "endingTimestamp"),
    *("startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"),
    *("startingOffsetsByTimestampStrategy", "failOnDataLoss"),
)

# What a moment is written as.
MOMENTS = "a time, like 2031-01-30T12:00:00, or milliseconds since 1970, of 1973 or later"

# Arrow's offsets have 32 bits.
_MOST_BLOCK_BYTES = 1024 * MIB


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The store, and the connection to its bucket."""

    store: str | None
    endpoint_url: str | None
    region: str | None
    profile: str | None


class HiddenFiles(StrEnum):
    """Treatment of names that Spark hides when it reads by path."""

    READ = "read"
    SKIP = "skip"


class NoTime(StrEnum):
    """Treatment of a segment that ends before the time at which its read starts."""

    LATEST = "latest"
    ERROR = "error"


class LineCompression(StrEnum):
    """Treatment of lines in segments whose names end with .gz, .bz2 or .zst."""

    AUTO = "auto"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The part of each segment that is read: bytes, entries of ledgers, times. Half-open; None: from or to the end."""

    start_offset: int | None = None
    end_offset: int | None = None
    start_entry: int | None = None
    end_entry: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None

    @property
    def cuts_bytes(self) -> bool:
        """Whether a segment may be read from a byte in it."""
        return self.cuts_times or self.start_offset is not None or self.end_offset is not None

    @property
    def cuts_times(self) -> bool:
        """Whether a segment may be read from a time on, or up to one."""
        return self.start_ms is not None or self.end_ms is not None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """All options of a read."""

    where: StoreOptions
    selection: Selection
    row_type: RowType
    lines: LineFormat
    block_bytes: int
    sizes: Sizes
    priority: ReadPriority | None
    tail: Tail
    bounds: Bounds
    named: NamedBounds = field(default_factory=NamedBounds)
    base: str | None = None
    """The directory below which names hold columns; None: the paths themselves."""
    zone: tzinfo = UTC
    """Of times that name none."""
    archive: ArchiveWait = field(default_factory=ArchiveWait)

    @classmethod
    def of(cls, options: Mapping[str, str], more: Iterable[str] = ()) -> ReadOptions:
        """Parse Spark's options except `more`, which belong to others. Raises InvalidRequest naming the wrong one."""
        catalog.require_kept(options)
        given = Given(options, (*_READ_OPTIONS, *more))
        where, paths, base = _paths(given)
        if given.flag("ignoreMissingFiles"):
            raise InvalidRequest(
                "ignoreMissingFiles is not supported: a truncated table would look complete",
                remedy="omit it; if segments were deleted meanwhile, read again, or use a stream",
            )
        zone, conditions = given.zone("timeZone"), given.text("partitionFilter")
        selection = Selection(
            paths,
            recursive=given.flag("recursiveFileLookup"),
            name_glob=given.text("pathGlobFilter"),
            modified_after_ms=given.time_ms("modifiedAfter", zone),
            modified_before_ms=given.time_ms("modifiedBefore", zone),
            conditions=() if conditions is None else conditions_of(conditions),
            skips_hidden=given.choice("hiddenFiles", HiddenFiles, HiddenFiles.READ) is HiddenFiles.SKIP,
        )
        sizes = Sizes(
            max_partition_bytes=given.size("maxPartitionBytes", 128 * MIB),
            open_cost_bytes=given.size("openCostInBytes", Sizes().open_cost_bytes),
            min_partitions=given.number("minPartitions", os.cpu_count() or 1),
        )
        block_bytes = given.size("blockBytes", MIB)
        if not 0 < block_bytes <= _MOST_BLOCK_BYTES:
            raise InvalidRequest("blockBytes must be between 1 and 1 GiB", remedy="omit it for the default, 1 MiB")
        named = _named_bounds(given, zone)
        bounds = Bounds(
            *(given.position(name) for name in ("startOffset", "endOffset", "startEntry", "endEntry")),
            *(given.moment_ms(name, zone) for name in ("startingTimestamp", "endingTimestamp")),
        )
        return cls(
            where=where,
            selection=selection,
            row_type=given.choice("type", RowType, RowType.LINES),
            lines=_line_format(given),
            block_bytes=block_bytes,
            sizes=sizes,
            priority=_priority(given.text("readPriority")),
            tail=given.choice("tail", Tail, Tail.LOCAL),
            bounds=bounds,
            named=named,
            base=base,
            zone=zone,
            archive=ArchiveWait.of(
                given.choice("archived", WhenArchived, WhenArchived.ERROR),
                given.duration_s("archivedTimeout"),
                None if given.text("thawDays") is None else given.number("thawDays", 1),
            ),
        )

    def require_batch(self) -> None:
        """Raise InvalidRequest for bounds that leave nothing to read in a batch, as Spark's source of Kafka does."""
        start, end = self.named.start, self.named.end
        if start is not None and LATEST in start.numbers.values():
            raise InvalidRequest(
                "startingOffsets = latest is not supported for batches: nothing would be read",
                remedy="set earliest, offsets by segment, or startingTimestamp",
            )
        if end is not None and EARLIEST in end.numbers.values():
            raise InvalidRequest(
                "endingOffsets = earliest is not supported: nothing would be read",
                remedy="set latest, offsets by segment, or endingTimestamp",
            )

    @property
    def form(self) -> RowForm:
        """The options that a task needs."""
        return RowForm(self.row_type, self.lines, self.block_bytes, self.zone)


class Given:
    """Options as given; names do not depend on case."""

    def __init__(self, options: Mapping[str, str], known: Iterable[str]) -> None:
        """Raises InvalidRequest for an unknown option, and for credentials."""
        known = tuple(known)
        names = {name.lower(): name for name in known}
        self._values = {name.lower(): value for name, value in options.items()}
        for name in self._values:
            if name in names:
                continue
            if any(part in name for part in _CREDENTIALS):
                raise InvalidRequest(
                    f"the option {printable(name)} is refused: options appear in logs and plans",
                    remedy="set profile, or use a source that botocore reads: AWS_PROFILE, ~/.aws, a role",
                )
            from tierfs.pipeline.spark import unknown_options  # only an error needs it

            spelling = next(given for given in options if given.lower() == name)
            raise InvalidRequest(
                f"unknown option {printable(unknown_options.spelled(spelling))}",
                remedy=unknown_options.remedy_for(spelling, known, STREAM_OPTIONS),
            )

    def text(self, name: str) -> str | None:
        """Return the text unchanged, or None if not given."""
        return self._values.get(name.lower())

    def flag(self, name: str) -> bool:
        """Return true or false."""
        try:
            return units.parse_flag(self.text(name) or "false")
        except ValueError as exc:
            raise self._wrong(name, units.FLAGS) from exc

    def number(self, name: str, default: int) -> int:
        """Return a whole number above 0."""
        value = self.text(name)
        if value is None:
            return default
        number = units.decimal(value)
        if not number:
            raise self._wrong(name, "a whole number above 0")
        return number

    def position(self, name: str) -> int | None:
        """Return an offset or the number of an entry."""
        value = self.text(name)
        position = None if value is None else units.decimal(value)
        if value is not None and position is None:
            raise self._wrong(name, "a whole number")
        return position

    def size(self, name: str, default: int) -> int:
        """Return bytes, from texts like 64MiB; Spark's 64m and 64mb mean the same."""
        value = self.text(name)
        if value is None:
            return default
        try:
            return units.parse_size(_binary(value))
        except ValueError as exc:
            raise self._wrong(name, "a size, like 128MiB") from exc

    def duration_s(self, name: str) -> float | None:
        """Return seconds, from texts like 15m, as Spark has them; a bare number, milliseconds there, is refused."""
        value = self.text(name)
        if value is None:
            return None
        try:
            if units.decimal(value) is not None:
                raise ValueError("no unit")
            return units.parse_duration(value)
        except ValueError as exc:
            raise self._wrong(name, "a time with its unit, like 30s or 15m") from exc

    def zone(self, name: str) -> tzinfo:
        """Return a time zone; UTC if not given."""
        value = self.text(name)
        if value is None:
            return UTC  # also on a machine without a database of time zones
        try:
            return ZoneInfo(value)
        except (KeyError, ValueError, OSError) as exc:  # unknown, no name of a file, a directory
            raise self._wrong(name, "a time zone, like Europe/Paris") from exc

    def time_ms(self, name: str, zone: tzinfo) -> int | None:
        """Return a time in Spark's form, 2031-01-30T12:00:00, in `zone` unless it names another."""
        value = self.text(name)
        if value is None:
            return None
        try:
            return spark_time_ms(value, zone)
        except ValueError as exc:
            raise self._wrong(name, "a time, like 2031-01-30T12:00:00") from exc

    def named(
        self, name: str, number_of: Callable[[object], int], words: Mapping[str, int], example: str
    ) -> NamedNumbers | None:
        """Return numbers by names of segments, from JSON or one of the words for all; None if not given."""
        value = self.text(name)
        if value is None:
            return None
        if value.lower() in words:
            return NamedNumbers.everywhere(name, words[value.lower()])
        by_name = json_object(value)
        if by_name is None:
            raise self._wrong(name, f"{', '.join((*words, 'JSON'))}, like {example}")
        return NamedNumbers.parse(name, by_name, number_of)

    def moment_ms(self, name: str, zone: tzinfo) -> int | None:
        """Return a time in Spark's form, or in milliseconds since the epoch as Spark's source of Kafka has it."""
        value = self.text(name)
        try:
            return None if value is None else moment_ms(value, zone)
        except ValueError as exc:
            raise self._wrong(name, MOMENTS) from exc

    def choice(self, name: str, kind: type[E], default: E) -> E:
        """Return one of several words, independent of case."""
        value = self.text(name)
        if value is None:
            return default
        for member in kind:
            if member.value.lower() == value.lower():
                return member
        raise self._wrong(name, " or ".join(member.value for member in kind))

    def _wrong(self, name: str, wanted: str) -> InvalidRequest:
        return InvalidRequest(
            f"invalid value {printable(self.text(name) or '')!r} for option {name}", remedy=f"expected {wanted}"
        )


def store_options(given: Given, store: str | None = None) -> StoreOptions:
    """Return the store options; `store` is named by a path. Raises InvalidRequest if an option names another one."""
    named = given.text("store")
    if store is not None and named is not None and store != named:
        raise InvalidRequest(
            f"the path is in the store {store}, but the option store is {named}",
            remedy="set either the path or the option store, not both",
        )
    return StoreOptions(named or store, given.text("endpointUrl"), given.text("region"), given.text("profile"))


def _paths(given: Given) -> tuple[StoreOptions, tuple[str, ...], str | None]:
    """Return the store, the names in it, and the name of basePath."""
    several = given.text("paths")
    single = given.text("path")
    paths = json.loads(several) if several is not None else [] if single is None else [single]
    if not paths or not all(paths):
        raise InvalidRequest(
            "no input path given",
            remedy="use load(PATH); in SQL, OPTIONS (path 'PATH') or WITH (path = 'PATH'); / is the root",
        )
    base = given.text("basePath")
    split = [split_url(path) for path in (*paths, *(() if base is None else (base,)))]
    stores = {store for store, _ in split if store is not None}
    if len(stores) > 1:
        raise InvalidRequest(
            "the paths belong to several stores", remedy="read each store separately, and combine them by union"
        )
    named = [name for _, name in split]
    return (
        store_options(given, next(iter(stores), None)),
        tuple(named[: len(paths)]),
        None if base is None else names.join(names.split(named[-1])),
    )


def _named_bounds(given: Given, zone: tzinfo) -> NamedBounds:
    """Return the bounds by names of segments. Raises InvalidRequest if two options say where a read starts or ends."""
    for start in ("starting", "ending"):
        names_of = (f"{start}Timestamp", f"{start}OffsetsByTimestamp", f"{start}Offsets")
        used = [name for name in names_of if given.text(name) is not None]
        if len(used) > 1:
            raise InvalidRequest(f"{' and '.join(used)} are mutually exclusive", remedy="set one of them")

    def time_number(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise ValueError(MOMENTS)
        return moment_ms(str(value), zone)

    words = {"earliest": EARLIEST, "latest": LATEST}
    saved, saved_end = (saved_offset(given.text(name)) for name in ("startingOffsets", "endingOffsets"))
    offsets, times = '{"logs/web": 1234, "logs": -1}', '{"logs/web": 1767225600000}'
    return NamedBounds(
        start=None if saved is not None else given.named("startingOffsets", offset_number, words, offsets),
        end=None if saved_end is not None else given.named("endingOffsets", offset_number, words, offsets),
        start_ms=given.named("startingOffsetsByTimestamp", time_number, {}, times),
        end_ms=given.named("endingOffsetsByTimestamp", time_number, {}, times),
        saved=saved,
        is_between=saved is not None or saved_end is not None,
        tolerant=given.text("failOnDataLoss") is not None and not given.flag("failOnDataLoss"),
        requires_time=given.choice("startingOffsetsByTimestampStrategy", NoTime, NoTime.LATEST) is NoTime.ERROR,
    )


def moment_ms(text: str, zone: tzinfo) -> int:
    """Parse milliseconds since the epoch, or a time in Spark's form, in `zone` unless it names another.

    Raises ValueError that names the valid forms.
    """
    try:
        number = units.parse_epoch_ms(text)
        return spark_time_ms(text, zone) if number is None else number
    except ValueError as exc:
        raise ValueError(MOMENTS) from exc


def spark_time_ms(text: str, zone: tzinfo) -> int:
    """Parse a time in Spark's form, 2031-01-30T12:00:00, in `zone` unless it names another. Raises ValueError."""
    time = datetime.fromisoformat(text)
    return int((time if time.tzinfo else time.replace(tzinfo=zone)).timestamp() * 1000)


def _line_format(given: Given) -> LineFormat:
    encoding = require_encoding(given.text("encoding") or "utf-8")
    return LineFormat(
        separator=Separator.of(given.text("lineSep"), encoding),
        encoding=encoding,
        mode=given.choice("mode", Mode, Mode.PERMISSIVE),
        max_line_bytes=given.size("maxLineBytes", 16 * MIB),
        whole=given.flag("wholetext"),
        decompresses=given.choice("compression", LineCompression, LineCompression.AUTO) is LineCompression.AUTO,
    )


def _priority(text: str | None) -> ReadPriority | None:
    try:
        return None if text is None else ReadPriority(text)
    except ValueError as exc:
        wanted = ", ".join(priority.value for priority in ReadPriority)
        raise InvalidRequest(
            f"invalid value {printable(text or '')!r} for option readPriority", remedy=f"expected one of {wanted}"
        ) from exc


def _binary(text: str) -> str:
    """Replace those of Spark's suffixes that count in 1024 there and in 1000 elsewhere: kb, mb, gb, tb."""
    stripped = text.strip().lower()
    return f"{stripped[:-1]}ib" if stripped.endswith(("kb", "mb", "gb", "tb")) else text
