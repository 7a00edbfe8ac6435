"""A batch read of what lies between two offsets of a stream: the same rows at each call, or an error.

The offsets are those of the progress, or the checkpoint, of a stream that has the same options otherwise. Any PySpark
that reads by name has it, 4.0 too, which has no streams by name.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructType

from tierfs.base.words.errors import InvalidRequest
from tierfs.pipeline.reader.stream_plan import StreamOffset
from tierfs.pipeline.spark.named_positions import saved_offset
from tierfs.pipeline.spark.opened_stream import OpenedStream, offset_in
from tierfs.pipeline.spark.planning import ReadPlan, open_store
from tierfs.pipeline.spark.stream_options import StreamOptions

STARTING, ENDING = "startingOffsets", "endingOffsets"

# The words that mean the same as no offset.
_WHOLE = {STARTING: "earliest", ENDING: "latest"}


def without_offsets(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the stream that has these offsets."""
    return {name: value for name, value in options.items() if name.lower() not in (STARTING.lower(), ENDING.lower())}


def plan_between(options: Mapping[str, str], schema: StructType) -> ReadPlan:
    """Plan the bytes between the two offsets in the options: from the first byte, or up to the last, without one.

    Raises InvalidRequest for an offset of another read, and for one beside an offset of another form, and DataLoss for
    bytes that are gone.
    """
    given = {name.lower(): value for name, value in options.items()}
    stream = StreamOptions.of(without_offsets(options))
    with open_store(stream.read.where) as store:
        opened = OpenedStream(stream, store, schema)
        start, end = (_offset(name, given.get(name.lower()), stream) for name in (STARTING, ENDING))
        start = opened.stream.earliest() if start is None else start
        return opened.between(start, opened.stream.next_offset(start) if end is None else end)


def _offset(option: str, text: str | None, stream: StreamOptions) -> StreamOffset | None:
    saved = saved_offset(text)
    if text is not None and saved is None and text.lower() != _WHOLE[option]:
        raise InvalidRequest(
            f"the option {option} has no offset of a stream, and the other one has",
            remedy="set both as in the progress of a stream, or both by segment",
        )
    return None if saved is None else offset_in(option, saved, stream)
