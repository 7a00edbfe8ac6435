"""Asking: run cold work here when nobody holds the store, else have the holder do it and wait for it.

Both ways end with the same result or error. A holder that dies meanwhile is no failure: the next one
takes the request, or this process does the work itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tierfs import errors
from tierfs.background import requests
from tierfs.background.holder import HeldElsewhere
from tierfs.background.upload import Progress, Report
from tierfs.metadata.records import RequestRecord
from tierfs.metadata.store import MetadataStore
from tierfs.types import RequestState

_POLL_S = 0.1
"""A person does not see less, and a poll costs microseconds."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: the verb with its path and options, and how to do it here."""

    verb: str
    path: str
    options: Mapping[str, str]
    inline: Callable[[], dict[str, Any]]
    """Does it under the holder's lock; raises HeldElsewhere when there is a holder."""


def ask(metadata: MetadataStore, question: Question, report: Report) -> dict[str, Any]:
    """Have it done, wherever; returns the result. Raises what the work raises."""
    try:
        return question.inline()
    except HeldElsewhere:
        number = submit(metadata, question)
    try:
        while True:
            found = requests.get(metadata, number)
            if found.state in (RequestState.DONE, RequestState.FAILED):
                return _result(found)
            if found.state is RequestState.RUNNING:
                report(Progress(found.done_bytes, found.total_bytes, found.item))
            time.sleep(_POLL_S)
            done = _do_it_here(metadata, question, number)
            if done is not None:
                return done
    finally:
        requests.withdraw(metadata, number)


def submit(metadata: MetadataStore, question: Question) -> int:
    """Ask without waiting; returns the request's id."""
    return requests.submit(metadata, question.verb, question.path, question.options)


def _do_it_here(metadata: MetadataStore, question: Question, number: int) -> dict[str, Any] | None:
    """The holder may be gone, or have been a command that serves nobody."""
    try:
        return question.inline()
    except HeldElsewhere:
        return None


def _result(found: RequestRecord) -> dict[str, Any]:
    if found.state is RequestState.FAILED:
        raise errors.named(found.error_kind)(found.error, remedy=found.remedy or None)
    result: dict[str, Any] = json.loads(found.result)
    return result
