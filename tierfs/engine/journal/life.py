"""Signs of life: an owner that is followed by a standby shows one again and again, also while it publishes nothing.

A standby puts a mark, `journal/standby-<id>-<seconds it waits>`. The listing by which an owner proves its ownership
shows it, so a store without a standby sends no request for this. From then on the owner replaces `journal/alive`
several times within the time that the most impatient standby waits, and lists there the standbys that it knows.

Nothing depends on a sign of life but the moment of a takeover: the journal alone is the fence. An owner that was
superseded may put one more, of its own epoch, which nobody counts. Times of two hosts are never compared: a sign of
life has a random number, and a standby counts the time since it saw another one.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Any

from tierfs.base.bytes.frozen import dataclass
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal import notes
from tierfs.engine.journal.names import ALIVE_NAME, standby_marks, standby_name, standby_of

_ALIVE = "the owner of this tierfs store is alive; replaced while a standby follows the store"
_STANDBY = "a standby follows this tierfs store, and takes it over when its owner shows no sign of life"

# Standbys that an owner lists: with more of them, the note would be too long to be read.
_MOST_STANDBYS = 64


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """One sign of life of an owner."""

    store_id: str
    epoch: int
    host: str
    beat: str
    """Random: another one for each sign."""
    standbys: tuple[str, ...] = ()
    """Ids of the standbys that the owner knows."""
    local_only_bytes: int = -1
    """Bytes that only the owner's disk has; -1 when that is not known."""


@dataclass(frozen=True, slots=True)
class StandbyMark:
    """A standby that follows the store."""

    id: str
    after_s: int
    """Time without a sign of life after which it takes over."""


def show(storage: ChunkStorage, sign: SignOfLife) -> None:
    """Replace the owner's sign of life. Raises what put raises."""
    fields = {
        "tierfs": _ALIVE,
        "store": sign.store_id,
        "epoch": sign.epoch,
        "host": sign.host,
        "beat": sign.beat,
        "standbys": list(sign.standbys[:_MOST_STANDBYS]),
        "local_only_bytes": sign.local_only_bytes,
    }
    storage.put(ALIVE_NAME, notes.source(fields), create_only=False)


def seen(storage: ChunkStorage) -> SignOfLife | None:
    """Return the newest sign of life; None for none, and for a note that is none. Raises what the storage raises."""
    fields: Any = notes.read(storage, ALIVE_NAME)
    try:
        texts = [fields[key] for key in ("store", "host", "beat")]
        epoch, local_only_bytes, standbys = fields["epoch"], fields["local_only_bytes"], fields["standbys"]
    except (KeyError, TypeError):
        return None
    if not isinstance(standbys, list) or not all(isinstance(text, str) for text in (*texts, *standbys)):
        return None
    if not all(type(number) is int for number in (epoch, local_only_bytes)):
        return None
    return SignOfLife(texts[0], epoch, texts[1], texts[2], tuple(standbys), local_only_bytes)


def put_mark(storage: ChunkStorage, mark: StandbyMark) -> None:
    """Put a standby's mark, and remove those with which it waited for another time. Raises what the storage raises."""
    name = standby_name(mark.id, mark.after_s)
    fields = {"tierfs": _STANDBY, "host": socket.gethostname(), "takes over after": f"{mark.after_s} s"}
    storage.put(name, notes.source(fields), create_only=False)
    remove_marks(storage, mark.id, but=name)


def has_mark(storage: ChunkStorage, mark: StandbyMark) -> bool:
    """Return whether a standby's mark is there. Raises what the storage raises."""
    wanted = standby_name(mark.id, mark.after_s)
    return any(item.name == wanted for item in storage.list(standby_marks(mark.id)))


def remove_marks(storage: ChunkStorage, standby_id: str, *, but: str = "") -> None:
    """Remove the marks of a standby, except the one of this name. Idempotent. Raises what the storage raises."""
    for item in list(storage.list(standby_marks(standby_id))):
        if item.name != but:
            storage.delete(item.name)


def marks_in(names: Iterable[str]) -> tuple[StandbyMark, ...]:
    """Return the standbys whose marks a listing showed, the most impatient first."""
    marks = {StandbyMark(*mark) for name in names if (mark := standby_of(name)) is not None}
    return tuple(sorted(marks, key=lambda mark: (mark.after_s, mark.id)))


def host_of(storage: ChunkStorage, mark: StandbyMark) -> str:
    """Return the host that put a mark, for people; empty if it is unknown. Raises what the storage raises."""
    fields: Any = notes.read(storage, standby_name(mark.id, mark.after_s))
    host = fields.get("host") if isinstance(fields, dict) else None
    return host if isinstance(host, str) else ""
