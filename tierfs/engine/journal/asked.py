"""The note of when the bucket was last asked for its owner, for all processes of a store."""

from __future__ import annotations

import logging
from dataclasses import replace

from tierfs.base.words.errors import TierfsError
from tierfs.engine.metadata.journal_state import OwnerAsked
from tierfs.engine.metadata.store import MetadataStore

log = logging.getLogger(__name__)


def note_asked(metadata: MetadataStore, asked_s: float, wrong_place: str | None = "", *, every_s: float = 0.0) -> None:
    """Record when the bucket was asked for its owner, and why the place was not ours; None: that is not known.

    Written when the latter changed, else once in `every_s`.
    """
    with metadata.read() as txn:
        state, boot_id = txn.store.journal, metadata.clock.boot_id()
    if wrong_place is None:
        wrong_place = state.wrong_place
    if state.wrong_place == wrong_place and is_recent(state.asked.at_s(boot_id), asked_s, every_s):
        return
    asked = OwnerAsked(boot_id=boot_id, boot_ms=int(asked_s * 1000))
    try:
        with metadata.write_notes() as writing:
            writing.update_store(journal=replace(writing.store.journal, wrong_place=wrong_place, asked=asked))
    except TierfsError as exc:  # a full disk, most likely, where eviction must continue
        log.warning("cannot record whether the cold tier belongs to this store: %s", exc)


def is_recent(since_s: float | None, now_s: float, limit_s: float) -> bool:
    """Return whether a time since boot is known, and at most `limit_s` ago."""
    return since_s is not None and 0 <= now_s - since_s <= limit_s
