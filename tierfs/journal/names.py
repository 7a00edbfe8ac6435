"""Names of the journal's objects. Slots sort before checkpoints, so one listing finds both."""

from __future__ import annotations

import re

JOURNAL_PREFIX = "journal/"

_SLOT = re.compile(r"journal/(\d{20})")
_CHECKPOINT = re.compile(r"journal/checkpoint-(\d{20})")
_PART = re.compile(r"journal/checkpoint-(\d{20})\.part-([0-9a-f]{32})-(\d{6})")


def slot_name(slot: int) -> str:
    """Return the object name of one journal entry."""
    return f"{JOURNAL_PREFIX}{slot:020d}"


def checkpoint_name(slot: int) -> str:
    """Return the manifest name of the checkpoint that contains every slot up to `slot`."""
    return f"{JOURNAL_PREFIX}checkpoint-{slot:020d}"


def part_name(slot: int, attempt: str, index: int) -> str:
    """Return the name of one part of a checkpoint; the attempt distinguishes it from parts of a crashed one."""
    return f"{checkpoint_name(slot)}.part-{attempt}-{index:06d}"


def entry_slot(name: str) -> int | None:
    """Return the slot in an entry's name, None for other names."""
    match = _SLOT.fullmatch(name)
    return int(match[1]) if match else None


def checkpoint_slot(name: str) -> int | None:
    """Return the slot in a manifest's name, None for other names."""
    match = _CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else None


def part_of(name: str) -> tuple[int, str] | None:
    """Return slot and attempt in a part's name, None for other names."""
    match = _PART.fullmatch(name)
    return (int(match[1]), match[2]) if match else None
