"""Streams: readers that go on from positions that they keep, and read each acknowledged byte once, or say why not."""

from __future__ import annotations

import json
import logging
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.simulation.faces.scan import WorldConnections
from tests.simulation.model import Content
from tests.simulation.places import COLD
from tests.simulation.steps import Arguments, NothingToDo, verb
from tests.simulation.verbs.writing import LINE_END
from tests.simulation.world import World, Wrong, listed
from tierfs.base.bytes.joins import MAX_JOINS
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import SegmentId
from tierfs.engine.metadata.store import MetadataStore
from tierfs.pipeline.reader.fetching import ScanFetcher, ScanSource
from tierfs.pipeline.reader.line_format import LineFormat, Separator
from tierfs.pipeline.reader.selection import PinnedSegment, Selection
from tierfs.pipeline.reader.stream import Records, Stream, StreamRead
from tierfs.pipeline.reader.stream_plan import StreamOffset
from tierfs.pipeline.reader.stream_shares import Limits

_LOG = "tierfs.pipeline.reader.stream"
_LINES = LineFormat(separator=Separator(LINE_END))
_NAMED = re.compile(r"segment (?P<name>\S+?)(?: |:|,)")


@dataclass
class Reading:
    """A stream, its checkpoint, and what it has read."""

    records: Records
    offset: str = ""
    pending: str = ""
    """The end of a batch that was begun, and is read again: a checkpoint names it first."""
    read: set[int] = field(default_factory=set)
    """Numbers of bytes."""
    passed_by: set[SegmentId] = field(default_factory=set)
    """Segments of which it said that it cannot read all."""
    gaps: set[int] = field(default_factory=set)
    """Bytes that were unread when it said that a batch has others than before."""
    stream: Stream | None = None
    of: MetadataStore | None = None
    """The open store of the stream."""

    def opened(self, world: World, *, anew: bool) -> Stream:
        """Return the stream of this process; perhaps of another one."""
        store = world.store
        if self.stream is None or self.of is not store.metadata or anew:
            read = StreamRead(
                str(self.records), Selection(recursive=True), self.records, _LINES, fail_on_data_loss=False
            )
            self.stream = Stream(store.metadata, str(store.path), COLD, WorldConnections(world), read)
            self.of = store.metadata
        if not self.offset:
            self.offset = _text(self.stream.earliest())
        return self.stream


def _stream(world: World, chance: random.Random) -> Arguments:
    if world.damages:
        raise NothingToDo
    limit = chance.choice([None, None, 1, chance.randint(1, 6 * world.knobs.chunk_bytes)])
    arguments = {"records": chance.choice(["lines", "bytes"]), "limit": limit, "anew": chance.random() < 0.2}
    return {**arguments, "batches": chance.choice([1, 2, 50]), "stops": chance.random() < 0.2}


@verb(3, _stream)
def stream(world: World, arguments: Arguments) -> None:
    """Read some batches; where nothing follows, everything was read once. The last one may be begun and not read."""
    if world.damages:
        raise NothingToDo
    records = Records(arguments["records"])
    reading = world.readings.setdefault(records, Reading(records))
    opened = reading.opened(world, anew=arguments["anew"])
    try:
        with _told() as words:
            is_all = _read(world, reading, opened, arguments)
    except DataLoss as exc:
        _require_a_reason(world, records, exc)
        del world.readings[records]  # begin with a new checkpoint
        return
    for text in words:
        _note(world, reading, text)
    if is_all:
        _require_everything(world, reading)


def _read(world: World, reading: Reading, stream: Stream, arguments: Arguments) -> bool:
    """Read batches; return whether nothing follows."""
    for _ in range(arguments["batches"]):
        if not reading.pending:
            end = _text(stream.next_offset(_offset(reading.offset), Limits(arguments["limit"])))
            if end == reading.offset:
                return True
            reading.pending = end
        if arguments["stops"]:
            return False
        place, pinned = stream.pinned(_offset(reading.offset), _offset(reading.pending))
        numbers = set[int]()  # of a batch that is read again they do not count yet
        for part in pinned:
            source = ScanSource(part.segment.id, part.path, part.priority.value, part.ledger)
            with ScanFetcher(place, WorldConnections(world), (source,)) as fetcher:
                numbers |= _taken(world, reading, part, fetcher.read(0, part.extents))
        reading.read |= numbers
        reading.offset, reading.pending = reading.pending, ""
    return False


def _taken(world: World, reading: Reading, part: PinnedSegment, data: bytes) -> set[int]:
    """Return the numbers of the bytes of a part. Raises Wrong."""
    content, span = world.model.live[part.path], part.range
    if data != content.data[span.start : span.end]:
        raise Wrong(
            f"{part.path} has wrong bytes between {span.start} and {span.end}, in a stream of {reading.records}"
        )
    numbers = content.numbers(span.start, span.end)
    if twice := numbers & reading.read - world.unsure:
        raise Wrong(f"{len(twice)} bytes of {part.path} between {span.start} and {span.end} were streamed before")
    return numbers


def _require_everything(world: World, reading: Reading) -> None:
    segments = listed(world.store.metadata)
    for name, content in world.model.live.items():
        if segments[name].id in reading.passed_by:
            continue
        end = len(content.data) if reading.records is Records.BYTES or content.sealed else _last_end(content)
        left = content.numbers(content.start, end) - reading.read - reading.gaps - world.unsure
        if left:
            raise Wrong(f"{len(left)} bytes of {name} are passed by, streamed as {reading.records}")


def _last_end(content: Content) -> int:
    return max(content.start, content.data.rfind(LINE_END) + 1)


def _note(world: World, reading: Reading, text: str) -> None:
    """Note what a stream says that it will not read. Raises Wrong where that is not so."""
    if "of a batch are missing" in text or "a repeated batch has" in text or "and concatenated to" in text:
        for content in world.model.live.values():
            reading.gaps |= content.numbers(0, len(content.data)) - reading.read
        return
    if "was deleted: " in text:
        return  # what has its name by now is another one, and read anew
    named = _NAMED.search(text)
    name = "" if named is None else named["name"]
    if name not in world.model.live:
        return
    segment = world.store.segment(name)
    if "was unsealed" in text and segment.id not in world.reopened:
        raise Wrong(f"a stream says: {text}")
    reading.passed_by.add(segment.id)


def _require_a_reason(world: World, records: Records, exc: DataLoss) -> None:
    joins = max((len(list(segment.joins)) for segment in listed(world.store.metadata).values()), default=0)
    if not joins or (records is Records.BYTES and joins < MAX_JOINS):
        raise Wrong(f"a stream of {records} cannot go on: {exc}") from exc


@contextmanager
def _told() -> Iterator[list[str]]:
    """Give what streams warn of."""
    words: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            words.append(record.getMessage())

    handler, logger = Handler(logging.WARNING), logging.getLogger(_LOG)
    logger.addHandler(handler)
    try:
        yield words
    finally:
        logger.removeHandler(handler)


def _text(offset: StreamOffset) -> str:
    return json.dumps(offset.as_json())


def _offset(text: str) -> StreamOffset:
    return StreamOffset.of(json.loads(text))
