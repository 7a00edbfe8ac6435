"""Names of the journal's objects. Slots sort before checkpoints, so one listing finds both.

Anybody who can write to the bucket chooses names: a number that no owner can reach makes it no name of a journal.
"""

from __future__ import annotations

import re

from tierfs.engine.metadata.epoch_numbers import MAX_EPOCH, first_of

JOURNAL_PREFIX = "journal/"

# The last slot of the last owner there can be.
MAX_SLOT = first_of(MAX_EPOCH + 1) - 1

# The note in a place that a cold tier is being moved to, until it has all of it.
MOVING_NAME = f"{JOURNAL_PREFIX}moving"

# The owner's sign of life: it sorts behind all slots, as every name here with a letter does, so older versions pass by.
ALIVE_NAME = f"{JOURNAL_PREFIX}alive"

_STANDBY_PREFIX = f"{JOURNAL_PREFIX}standby-"

_SLOT = re.compile(r"journal/([0-9]{20})")
_CHECKPOINT = re.compile(r"journal/checkpoint-([0-9]{20})")
_LEFT = re.compile(r"journal/moved-([0-9]{20})")
_STANDBY = re.compile(r"journal/standby-([0-9a-f]{32})-([0-9]{8})")
_PART = re.compile(r"journal/checkpoint-([0-9]{20})\.part-([0-9a-f]{32})-([0-9]{6})")
_LEVEL_PART = re.compile(r"journal/0-part-([0-9]{20})-([0-9a-f]{32})-([0-9]{6})(\.copy)?")


def slot_name(slot: int) -> str:
    """Return the object name of one journal entry."""
    return f"{JOURNAL_PREFIX}{slot:020d}"


def checkpoint_name(slot: int) -> str:
    """Return the manifest name of the checkpoint that contains every slot up to `slot`."""
    return f"{JOURNAL_PREFIX}checkpoint-{slot:020d}"


def part_name(slot: int, attempt: str, index: int) -> str:
    """Return the name of one part of a checkpoint; the attempt distinguishes it from parts of a crashed one."""
    return f"{checkpoint_name(slot)}.part-{attempt}-{index:06d}"


def level_name(slot: int, attempt: str) -> str:
    """Return the prefix of the parts of one level.

    They sort before all slots: the listing that proves ownership, from the newest slot on, does not pass through them.
    """
    return f"{JOURNAL_PREFIX}0-part-{slot:020d}-{attempt}-"


def level_part_name(slot: int, attempt: str, index: int, *, copy: bool = False) -> str:
    """Return the name of one part of a level, or of its copy."""
    return f"{level_name(slot, attempt)}{index:06d}{'.copy' if copy else ''}"


def left_name(slot: int) -> str:
    """Return the name of the note in a place that was left when `slot` was its newest one.

    It sorts behind all slots and checkpoints: the listing that proves ownership shows it, and older versions pass by.
    """
    return f"{JOURNAL_PREFIX}moved-{slot:020d}"


def standby_name(standby_id: str, after_s: int) -> str:
    """Return the name of a standby's mark: the listing that proves ownership shows it, and the time it waits."""
    return f"{standby_marks(standby_id)}{after_s:08d}"


def standby_marks(standby_id: str) -> str:
    """Return the prefix of the marks of one standby."""
    return f"{_STANDBY_PREFIX}{standby_id}-"


def standby_of(name: str) -> tuple[str, int] | None:
    """Return the id of the standby that put a mark, and the seconds it waits; None for other names."""
    match = _STANDBY.fullmatch(name)
    after_s = 0 if match is None else int(match[2])
    return (match[1], after_s) if match is not None and after_s else None


def entry_slot(name: str) -> int | None:
    """Return the slot in an entry's name, None for other names."""
    return _slot(_SLOT.fullmatch(name))


def checkpoint_slot(name: str) -> int | None:
    """Return the slot in a manifest's name, None for other names."""
    return _slot(_CHECKPOINT.fullmatch(name))


def left_slot(name: str) -> int | None:
    """Return the slot in a note's name, None for other names."""
    return _slot(_LEFT.fullmatch(name))


def part_of(name: str) -> tuple[int, str] | None:
    """Return slot and attempt in a part's name, None for other names."""
    return _place(_PART.fullmatch(name)) or level_of(name)


def level_of(name: str) -> tuple[int, str] | None:
    """Return slot and attempt in the name of a level's part, None for other names."""
    return _place(_LEVEL_PART.fullmatch(name))


def is_copy(name: str) -> bool:
    """Return whether a part's name is that of the copy of one."""
    match = _LEVEL_PART.fullmatch(name)
    return match is not None and match[4] is not None


def _place(match: re.Match[str] | None) -> tuple[int, str] | None:
    slot = _slot(match)
    return None if match is None or slot is None else (slot, match[2])


def _slot(match: re.Match[str] | None) -> int | None:
    slot = 0 if match is None else int(match[1])
    return slot if 0 < slot <= MAX_SLOT else None
