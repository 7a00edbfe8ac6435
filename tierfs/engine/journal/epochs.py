"""Store epochs that began, as objects of the bucket: no later recovery takes one of them again.

An owner that made no object is named by its journal alone, and the journal may be lost. So each recovery creates
`epochs/<epoch>`, create-only, before it wins a slot. A recovery that fails after that leaves the object: a number that
nobody uses. Its name says all; its content is for people, and tells standbys of an owner that was one.
"""

from __future__ import annotations

import json
import re
import socket
from datetime import UTC, datetime
from typing import Any

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import AlreadyExists, Fenced
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.engine.chunkstore.validate import ATTEMPT_KEY
from tierfs.engine.journal import notes
from tierfs.engine.metadata.epoch_numbers import MAX_EPOCH
from tierfs.engine.metadata.store import new_id

EPOCHS_PREFIX = "epochs/"

_NAME = re.compile(r"epochs/([0-9]{10})")
_NOTE = "an owner of this tierfs store began this epoch; leave this object here"


def named(name: str) -> int | None:
    """Return the epoch in a name; None for other names, and for numbers that no owner reaches."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match is not None and int(match[1]) <= MAX_EPOCH else None


def newest(storage: ChunkStorage) -> int:
    """Return the newest epoch that began; 0 for none. Other names are ignored, as are numbers that no owner reaches."""
    return max(filter(None, (named(item.name) for item in storage.list(EPOCHS_PREFIX))), default=0)


@dataclass(frozen=True, slots=True)
class EpochNote:
    """The owner that began an epoch, as far as its note says."""

    host: str = ""
    was_standby: bool = False
    """Whether it took over as a standby: then it shows signs of life to others."""
    attempt: str = ""
    """Id of that takeover, by which the standby knows one that was killed half-way; empty before 0.2."""


def note_of(storage: ChunkStorage, epoch: int) -> EpochNote:
    """Return who began an epoch; nothing is known of the first one. Its note is untrusted. Raises the storage's."""
    fields: Any = notes.read(storage, _name(epoch))
    if not isinstance(fields, dict):
        return EpochNote()
    host, attempt = (text if isinstance(text := fields.get(key), str) else "" for key in ("host", "attempt"))
    return EpochNote(host, fields.get("was_standby") is True, attempt)


def _name(epoch: int) -> str:
    return f"{EPOCHS_PREFIX}{epoch:010d}"


def begin(storage: ChunkStorage, epoch: int, store_id: str, now_ms: int, *, standby_attempt: str = "") -> None:
    """Record that a new owner begins this epoch, with the id of a standby's takeover. Raises Fenced for a lost race."""
    began = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    fields = {"tierfs": _NOTE, "store": store_id, "epoch": epoch, "host": socket.gethostname(), "began": began}
    if standby_attempt:
        fields |= {"was_standby": True, "attempt": standby_attempt}
    data = BufferSource(json.dumps(fields, indent=2).encode() + b"\n")
    try:
        storage.put(_name(epoch), data, metadata={ATTEMPT_KEY: new_id()})
    except AlreadyExists as exc:
        raise faster(epoch) from exc


def faster(epoch: int) -> Fenced:
    """Return the error of a recovery that lost a race."""
    return Fenced(
        f"another recovery took the bucket over meanwhile, with epoch {epoch}",
        remedy="use the store that it created, or recover again to replace it",
    )
