"""Options that tierfs does not have: the answer to one names the option that does the same. Pure.

Spark makes the names of options lower case before a source in Python sees them, so a known name of another source is
shown as its users write it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

# Options of Spark's own sources, and of Kafka's, Kinesis' and Delta's.
_SAME: Mapping[str, str] = {
    "maxOffsetsPerTrigger": "maxBytesPerTrigger",
    "maxRowsPerTrigger": "maxBytesPerTrigger",
    "maxRecordsPerTrigger": "maxBytesPerTrigger",
    "minOffsetsPerTrigger": "minBytesPerTrigger",
    "minRowsPerTrigger": "minBytesPerTrigger",
    "startingVersion": "startingOffsets",
    "startingPosition": "startingOffsets",
    "initialPosition": "startingOffsets",
    "endingVersion": "endingOffsets",
    "startingTime": "startingTimestamp",
    "timestampAsOf": "endingTimestamp",
    "charset": "encoding",
    "codec": "compression",
    "multiLine": "wholetext",
    "lineDelimiter": "lineSep",
    "numPartitions": "minPartitions",
    "maxRecordsPerPartition": "maxPartitionBytes",
    "spark.sql.files.maxPartitionBytes": "maxPartitionBytes",
    "endpoint": "endpointUrl",
    "fs.s3a.endpoint": "endpointUrl",
    "kafka.bootstrap.servers": "store",
    "subscribe": "path",
    "subscribePattern": "path",
    "assign": "path",
    "topic": "path",
    "timezone": "timeZone",
    "partitionBy": "keyColumn",
}

_CHECKPOINT = "not needed: the checkpoint has the positions, and no group is registered"
_NO_COLUMNS = "rows are lines: split them with from_csv or from_json"
_EACH_ONCE = "not needed: positions are kept in each segment, so no file is forgotten or read twice"
_NOTHING: Mapping[str, str] = {
    "kafka.group.id": _CHECKPOINT,
    "groupIdPrefix": _CHECKPOINT,
    "includeHeaders": "use type = messages, which has a column properties",
    "header": _NO_COLUMNS,
    "inferSchema": _NO_COLUMNS,
    "sep": _NO_COLUMNS,
    "delimiter": _NO_COLUMNS,
    "maxFileAge": _EACH_ONCE,
    "latestFirst": _EACH_ONCE,
    "fileNameOnly": _EACH_ONCE,
    "cleanSource": "not supported: the store drops old bytes by itself: tierfs config DIRECTORY retention_age=90d",
}

_SPELLED = {name.lower(): name for name in (*_SAME, *_NOTHING)}

# As alike as a slip of one or two letters makes two words; and as words with a part in common are (guesses).
_ALIKE, _NEAR = 0.85, 0.66

# Names that an answer has at most.
_MOST_NEAR = 3


def spelled(name: str) -> str:
    """Return the name as the users of its source write it, where it is known."""
    return _SPELLED.get(name.lower(), name)


def remedy_for(name: str, known: Sequence[str], of_streams: Sequence[str]) -> str:
    """Return what to do about an option that is unknown here: drop it, or use the one that means it."""
    if name.lower() in {option.lower() for option in of_streams}:
        return "it is for streams (readStream); a batch reads everything between its first and last offset or time"
    meant = _SAME.get(spelled(name))
    if meant in known:
        return f"use {meant}"
    if spelled(name) in _NOTHING:
        return _NOTHING[spelled(name)]
    near = sorted(((_likeness(name, option), option) for option in known), key=lambda pair: (-pair[0], pair[1]))
    if near and near[0][0] >= _ALIKE:
        return f"use {near[0][1]}"
    named = [option for likeness, option in near[:_MOST_NEAR] if likeness >= _NEAR]
    if named:
        return f"the nearest: {', '.join(named)}; all options: docs/spark-options.md"
    return f"known: {', '.join(known)}"


def _likeness(name: str, option: str) -> float:
    """Return how alike two names are, from 0 to 1, whatever separates their words."""
    first, second = (re.sub(r"[-_. ]", "", text.lower()) for text in (name, option))
    return SequenceMatcher(None, first, second).ratio()
