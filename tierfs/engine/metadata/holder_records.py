"""Records of the holder's work: what commands request, and what it could not do. See records.proto."""

from __future__ import annotations

from collections.abc import Mapping

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words.types import RequestState
from tierfs.engine.metadata.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord(Record):
    """Work requested of the holder."""

    id: int
    verb: str
    path: str = ""
    state: RequestState = RequestState.WAITING
    done_bytes: int = 0
    total_bytes: int = 0
    error_kind: str = ""
    error: str = ""
    remedy: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    result: str = ""
    created_ms: int = 0
    item: str = ""
    done_items: int = 0
    total_items: int = 0
    noun: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRecord(Record):
    """Background work that failed and is retried."""

    what: str
    name: str = ""
    bytes: int = 0
    attempts: int = 0
    since_ms: int = 0
    next_try_ms: int = 0
    error_kind: str = ""
    error: str = ""
