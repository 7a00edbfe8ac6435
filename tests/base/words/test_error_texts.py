"""The tree of errors: one line each, whatever names are in it."""

from __future__ import annotations

import logging
import random

import pytest

from tests.doubles.mutations import NAMES, times
from tierfs.base.system.daemon_log import OneLine
from tierfs.base.words import errors
from tierfs.base.words.errors import OffsetMismatch, TierfsError, printable
from tierfs.base.words.names import check_component, split
from tierfs.engine.metadata import records, untrusted

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TierfsError)]
SPECIAL = "\n\r\t\0\x1b\x7f\x85\xa0\u200e\u200f\u061c\u2028\u2029\u202e\u2066\ufeff\ud800\udfff\U000e0001\\'\"é٣"


def texts() -> list[str]:
    chance = random.Random(7)
    made = ["".join(chance.choices(f"{SPECIAL}ab/. ", k=chance.randrange(1, 12))) for _ in range(300 * times())]
    return [*NAMES, *SPECIAL, *made]


def make(kind: type[TierfsError], message: str, remedy: str) -> TierfsError:
    if issubclass(kind, OffsetMismatch):
        return kind(message, actual_length=1, remedy=remedy)
    return kind(message, remedy=remedy)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_shows_nothing_that_moves_a_cursor_or_turns_text_around(kind: type[TierfsError]) -> None:
    for text in texts():
        error = make(kind, f"segment {text} is gone", f"tierfs rm {text}")
        assert str(error).isprintable()
        assert (error.remedy or "").isprintable()
        assert str(error) == f"segment {printable(text)} is gone"


def test_requirements_and_refusals_of_names_are_printable_too() -> None:
    for text in texts():
        for refuse in (
            lambda text=text: records.require(False, "it is", 3, text),
            lambda text=text: untrusted.require(False, "it is", text, text),
            lambda text=text: untrusted.check_component(f"{text}/"),
            lambda text=text: check_component(f"\n{text}"),
            lambda text=text: split(f"\n{text}"),
        ):
            with pytest.raises(TierfsError) as refused:
                refuse()
            assert str(refused.value).isprintable()


def test_a_line_of_a_log_file_is_one_line() -> None:
    for text in texts():
        record = logging.LogRecord("tierfs", logging.WARNING, "", 0, "segment %s is gone", (text,), None)
        assert OneLine("%(levelname)s %(message)s").format(record) == f"WARNING segment {printable(text)} is gone"


def test_printable_text_stays_as_it_is() -> None:
    for text in ("a/b c", "é٣😀", "back\\slash", printable(SPECIAL)):
        assert printable(text) == text
