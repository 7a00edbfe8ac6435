"""The notes of a move: in the place that the cold tier was moved from, and in that it is being moved to.

The first one is a last, create-only object of the journal.

Without it replicas of that place would be content for ever, `recover` would bring back a store of then, and a copy of
the store's directory would acknowledge what nobody will find. It names the new place and no secret, and the newest slot
there was: behind a later slot it is void, as in a place that the cold tier came back to, or that was recovered all the
same. Crash order: new place recorded, with what is to be noted -> named by the journal there -> note put -> forgotten.
So a note never tells of a move that did not happen; one that is missing is put by the next holder.

The second one is there from before the first object is copied until the place is recorded and named by the journal
there. It says that objects may be missing: the journal is copied before most of them, and looks whole. If the holder
died before it removed the note, the next one does.
"""

from __future__ import annotations

import json
import shlex
import socket
from datetime import UTC, datetime
from typing import Any

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import AlreadyExists, PermissionDenied, WrongColdTier
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.engine.journal import notes
from tierfs.engine.journal.names import MOVING_NAME, left_name
from tierfs.engine.metadata.journal_state import LeftPlace
from tierfs.engine.metadata.records import LocationRecord

_FILE = "file:"
_MS_PER_S = 1000
_NOTE = "the cold tier of this store was moved; nothing was added here since"
_MOVING = "the cold tier of this store is being moved here; objects may be missing until this note is gone"
_ENDED = b"{}\n"


@dataclass(frozen=True, slots=True)
class Left:
    """The contents of a note; all but the slot is empty in one that cannot be read."""

    slot: int
    store_id: str = ""
    url: str = ""
    endpoint_url: str = ""
    host: str = ""
    moved_ms: int = 0

    @property
    def to(self) -> str:
        """The new place, in a few words."""
        if not self.url:
            return "another place, which is not readable in its damaged note"
        return f"{printable(self.url)} at {printable(self.endpoint_url)}" if self.endpoint_url else printable(self.url)

    @property
    def option(self) -> str:
        """The option by which recover and replica take the new place."""
        if not self.url:
            return "--bucket ..."
        kinds = {"s3": "--bucket", "file": "--cold-dir"}
        scheme = self.url.partition(":")[0]
        url = self.url.removeprefix("file:")
        named = f"{kinds.get(scheme, '--cold-url')} {_word(url)}"
        return f"{named} --endpoint-url {_word(self.endpoint_url)}" if self.endpoint_url else named

    @property
    def setting(self) -> str:
        """The settings by which a store takes the new place."""
        if not self.url:
            return "cold.url=..."
        named = f"cold.url={_word(self.url)}"
        return f"{named} cold.endpoint_url={_word(self.endpoint_url)}" if self.endpoint_url else named


def place_left(place: LocationRecord, slot: int, now_ms: int) -> LeftPlace:
    """Return a place of the store's, whose newest slot this is, as one where a note is to be put."""
    return LeftPlace(
        url=place.url,
        endpoint_url=place.endpoint_url,
        region=place.region,
        profile=place.profile,
        slot=slot,
        left_ms=now_ms,
    )


def _word(text: str) -> str:
    return shlex.quote(printable(text))


def put(storage: ChunkStorage, left: Left) -> None:
    """Put a note; one that is there already is success. Raises what put raises."""
    try:
        storage.put(left_name(left.slot), BufferSource(_encoded(left, _NOTE)))
    except AlreadyExists:
        if read(storage, left.slot).store_id != left.store_id:
            raise


def begin_moving(storage: ChunkStorage, origin: Left) -> None:
    """Note in a place that a cold tier is being moved there from `origin`. Raises what put raises."""
    storage.put(MOVING_NAME, BufferSource(_encoded(origin, _MOVING)), create_only=False)


def end_moving(storage: ChunkStorage) -> None:
    """Remove that note, or empty it where nothing may be deleted. Idempotent. Raises what the storage raises."""
    try:
        storage.delete(MOVING_NAME)
    except PermissionDenied:
        if moving(storage) is not None:
            storage.put(MOVING_NAME, BufferSource(_ENDED), create_only=False)


def moving(storage: ChunkStorage) -> Left | None:
    """Return from where a cold tier is being moved to a place, None if none is. Raises what the storage raises."""
    data = notes.read_bytes(storage, MOVING_NAME)
    return None if data is None or data == _ENDED else _parsed(0, data)


def require_moved(storage: ChunkStorage, remedy: str) -> None:
    """Raise WrongColdTier for a place that a move has not finished; `{option}` in the remedy stands for its origin."""
    origin = moving(storage)
    if origin is None:
        return
    begun = f" (started on {_day(origin)})" if origin.moved_ms else ""
    raise WrongColdTier(
        f"{storage!r} lacks a part of the cold tier: a move to it from {origin.to} has not finished{begun}",
        remedy=remedy.format(option=origin.option),
    )


def _encoded(left: Left, note: str) -> bytes:
    moved = datetime.fromtimestamp(left.moved_ms / _MS_PER_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    fields = {"tierfs": note, "store": left.store_id, "url": left.url, "endpoint_url": left.endpoint_url}
    return json.dumps(fields | {"host": left.host, "moved": moved}, indent=2).encode() + b"\n"


def read(storage: ChunkStorage, slot: int) -> Left:
    """Return what the note for a slot says. It is untrusted; damage leaves that there is one. Raises the storage's."""
    return _parsed(slot, notes.read_bytes(storage, left_name(slot)) or b"")


def _parsed(slot: int, data: bytes) -> Left:
    try:
        fields: Any = json.loads(data)
        texts = {key: fields[key] for key in ("url", "endpoint_url", "host")}
        store_id, moved_ms = fields["store"], round(datetime.fromisoformat(fields["moved"]).timestamp() * _MS_PER_S)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return Left(slot)
    if not all(isinstance(text, str) for text in (*texts.values(), store_id)):
        return Left(slot)
    return Left(slot, store_id, **texts, moved_ms=max(0, moved_ms))


def error(storage: ChunkStorage, slot: int, remedy: str) -> WrongColdTier:
    """Return the error of a place that was left; `{option}` and `{setting}` in the remedy stand for the new one."""
    left = read(storage, slot)
    return WrongColdTier(told(storage, left), remedy=remedy.format(option=left.option, setting=left.setting))


def told(storage: ChunkStorage, left: Left) -> str:
    """Return one line that says who moved what to where."""
    host = f" by {printable(left.host)}" if left.host else ""
    day = f" on {_day(left)}" if left.moved_ms else ""
    return f"{storage!r} is a previous place: its store's cold tier was moved to {left.to}{day}{host}"


def _day(left: Left) -> str:
    return f"{datetime.fromtimestamp(left.moved_ms / _MS_PER_S, UTC):%Y-%m-%d}"


def of_place(place: LocationRecord, slot: int, store_id: str, now_ms: int) -> Left:
    """Return what a note says of a place: its address, and no secret."""
    from tierfs.engine.chunkstore.places import address

    url = place.url if place.url.startswith(_FILE) else address.without_secret(place.url)
    return Left(slot, store_id, url, place.endpoint_url, socket.gethostname(), now_ms)
