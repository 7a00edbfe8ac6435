"""What an option of Spark that tierfs does not have may mean: the answer to it has the one that does the same. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

# Words of Spark's own sources, and of Kafka's, in lower case.
_SAME: Mapping[str, str] = {
    "maxoffsetspertrigger": "maxBytesPerTrigger",
    "maxrowspertrigger": "maxBytesPerTrigger",
    "charset": "encoding",
    "codec": "compression",
    "multiline": "wholetext",
    "linedelimiter": "lineSep",
    "numpartitions": "minPartitions",
    "spark.sql.files.maxpartitionbytes": "maxPartitionBytes",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
    "endingoffsets": "endOffset",
    "endpoint": "endpointUrl",
    "fs.s3a.endpoint": "endpointUrl",
    "subscribe": "path",
    "subscribepattern": "path",
    "topic": "path",
    "timezone": "timeZone",
}

# As alike as a slip of one or two letters makes two words: a wrong hint is worse than none (a guess).
_ALIKE = 0.85


def remedy_for(name: str, known: Sequence[str], of_streams: Sequence[str]) -> str:
    """Return what to do about an option that is unknown here: drop it, or use the one that means it."""
    if name.lower() in {option.lower() for option in of_streams}:
        return (
            "it is for streams (readStream); a batch starts at startOffset, startEntry or startingTimestamp, "
            "and reads all up to endOffset, endEntry or endingTimestamp"
        )
    meant = _SAME.get(name.lower())
    if meant in known:
        return f"use {meant}"
    alike = get_close_matches(name.lower(), [option.lower() for option in known], 1, _ALIKE)
    if alike:
        return f"use {next(option for option in known if option.lower() == alike[0])}"
    return f"known: {', '.join(known)}"
