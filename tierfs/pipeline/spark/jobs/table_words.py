"""Errors of a stream in the words of the command that follows into a table: it has no checkpoint, and other options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tierfs.base.words.errors import TierfsError
from tierfs.pipeline.reader.fetching import OR_WAIT, OR_WAIT_FIRST
from tierfs.pipeline.reader.stream import PASS_OVER
from tierfs.pipeline.reader.stream_plan import NEW_CHECKPOINT

_WORDS = {
    PASS_OVER: "add --skip-lost to continue without the lost rows",
    NEW_CHECKPOINT: "start another table",
    "the checkpoint": "the table",
    OR_WAIT: "",
    OR_WAIT_FIRST: "",
    "create the data frame again": "run it again",
}


@contextmanager
def told_of_a_table() -> Iterator[None]:
    """Raise the errors of the block with the words of the command."""
    try:
        yield
    except TierfsError as exc:
        text, remedy = _in_words(str(exc)), _in_words(exc.remedy or "")
        if (text, remedy) == (str(exc), exc.remedy or ""):
            raise
        raise type(exc)(text, remedy=remedy) from exc


def _in_words(text: str) -> str:
    for theirs, ours in _WORDS.items():
        text = text.replace(theirs, ours)
    return text
