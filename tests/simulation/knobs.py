"""Every constant that is a boundary, drawn small for one life, so that each boundary is crossed within some steps."""

from __future__ import annotations

import importlib
import pkgutil
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.types import CRC_BLOCK_BYTES

_ROOMS = (
    "engine.metadata",
    "engine.segments",
    "engine.chunkstore",
    "engine.frames",
    "engine.journal",
    "engine.ledger",
    "reading",
    "tiering",
    "upkeep",
    "app.recovery",
    "pipeline.reader",
    "faces.fsspec",
)

_PATCHED = {
    "CRC_BLOCK_BYTES": (16, 17, 24, 64),
    "RUN_BLOCKS": (2, 3, 8),
    "ENTRY_BYTES": (600, 1500, 1 << 22),
    "_ENTRY_CHANGES": (2, 5, 10_000, 10_000),
    "engine.chunkstore.memory.STEP_BYTES": (64, 100, 1000, 1 << 20),
    "engine.chunkstore.validate.STEP_BYTES": (64, 100, 1000, 1 << 20),
    "_LARGEST_PART": (2, 4),
    "MAX_PACK_ENTRIES": (2, 3, 20_000),
    "BATCH_RECORDS": (2, 7, 1000),
    "_BATCH_CHUNKS": (2, 7, 1000),
    "_BATCH_ROWS": (2, 7, 1000),
    "_BATCH": (1, 3, 200),
    "_BATCH_SEGMENTS": (1, 2, 500),
    "_BATCH_GARBAGE": (1, 3, 5000),
    "_BATCHES_PER_COMMIT": (1, 2, 1000),
    "_JOINED_BYTES": (40, 1 << 18),
}
"""Constants of the product, in every module that has one of that name or in the one named, and their draws."""

_OF_FRAMES = {
    "_STEP_FRAMES": (1, 2, 8),
    "reading.frames._STEP_BYTES": (1, 40, 1 << 20),
    "_MOST_OWN_SCRATCH_BYTES": (1, 60, 1 << 20),
    "_TAIL_BYTES": (9, 40, 1 << 16),
    "_KEPT_MAPS": (1, 2, 1024),
    "COPIED_BYTES": (1, 1, 100, 5 << 20),
    "MAX_RUN_FRAMES": (12, 12, 1024),
    "MAX_SECTIONS": (2, 10_000),
    "_FRAME_ROOM": (0, 100, 1 << 20),
}
"""The same of compressed objects. They are drawn last: lives that failed before there were any stay as they were."""

_OF_LEVELS = {
    "engine.journal.levels.SMALL_BYTES": (0, 0, 1 << 20),
    "engine.journal.levels.PART_BYTES": (400, 1500, 4 << 20),
    "engine.journal.levels.TAIL_BYTES": (300, 1000, 2 << 20),
    "engine.journal.kept_entries.KEPT_BYTES": (0, 600, 64 << 10),
}
"""The same of the levels of checkpoints, drawn after these."""

MOST_BLOCK_BYTES = max(_PATCHED["CRC_BLOCK_BYTES"])

_FIXED = {"_FAN_OUT": 16}
"""The same, of every life: of 256 directories per store most are empty, and a sixth of a life made and listed them."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """The limits of one life."""

    policy: dict[str, str]
    settings: OffloadSettings
    constants: dict[str, int] = field(default_factory=dict)
    attempts: int = 1
    """Tries of a request; a repeated PUT is one that the server may see twice."""
    page_cache: bool = True
    """Whether the file system tells what is in the page cache: which of two paths local reads take."""
    threads: bool = False
    """Whether pools have threads, whose order no seed decides; otherwise they do their work at once."""

    @property
    def chunk_bytes(self) -> int:
        """Length at which a chunk ends."""
        return int(self.policy["chunk_bytes"])

    def sizes(self) -> tuple[int, ...]:
        """Return the sizes at which something ends."""
        block, chunk = self.constants["CRC_BLOCK_BYTES"], self.chunk_bytes
        return (1, min(block, 6 * chunk), chunk, 2 * chunk, min(6 * chunk, int(self.policy["object_bytes"]) // 4))


def draw(chance: random.Random) -> Knobs:
    """Draw the limits of a life."""
    chunk_bytes = chance.choice([4, 16, 33, 64, chance.randint(5, 300)])
    object_bytes = chunk_bytes * chance.choice([1, 2, 3, 8, 20]) + chance.choice([0, 0, 1, 7])
    knobs = Knobs(
        policy={
            "chunk_bytes": str(chunk_bytes),
            "object_bytes": str(object_bytes),
            "trash_age": chance.choice(["100", "5000"]),
            "deletion_lag": chance.choice(["0", "60", "14400"]),
        },
        settings=OffloadSettings(
            objects_in_parallel=1,
            pack_below_bytes=chance.choice([0, 1 << 20, 1 << 20, 1 << 20]),
            ledger_block_bytes=chance.choice([400, 1000, 1 << 20]),
            grace_s=chance.choice([0, 5, 3600]),
            checkpoint_entries=chance.choice([2, 5, 30]),
            consolidate_chunks=chance.choice([2, 8]),
            relocate_dead_percent=chance.choice([1, 50]),
            relocate_min_bytes=1,
        ),
        constants={name: chance.choice(values) for name, values in _PATCHED.items()},
        attempts=chance.choice([1, 3]),
        page_cache=chance.random() < 0.7,
        threads=chance.random() < 0.1,
    )
    later = {name: chance.choice(values) for drawn in (_OF_FRAMES, _OF_LEVELS) for name, values in drawn.items()}
    return replace(knobs, constants={**knobs.constants, **later})


_DEFAULTS: dict[tuple[str, str], int] = {}
"""Of the product, by module and constant."""


def _known() -> dict[tuple[str, str], int]:
    """Return the constants of all modules as they are in the product; imports every room once."""
    if not _DEFAULTS:
        for room in _ROOMS:
            package = importlib.import_module(f"tierfs.{room}")
            for found in pkgutil.walk_packages(package.__path__, f"tierfs.{room}."):
                importlib.import_module(found.name)
        for key in (*_PATCHED, *_OF_FRAMES, *_OF_LEVELS, *_FIXED, *_derived(CRC_BLOCK_BYTES, 1, 1)):
            where, _, constant = key.rpartition(".")
            for name, module in sys.modules.items():
                if name.startswith("tierfs.") and hasattr(module, constant) and name.endswith(where):
                    _DEFAULTS[name, constant] = getattr(module, constant)
    return _DEFAULTS


def import_rooms() -> None:
    """Import all rooms of the product, whose functions may be swapped then."""
    _known()


def _derived(block_bytes: int, run_blocks: int, step_frames: int) -> dict[str, int]:
    """Return the constants that follow from others."""
    return {
        "RUN_BYTES": run_blocks * block_bytes,
        "SLOT_BYTES": block_bytes,
        "FRAME_BYTES": block_bytes,
        "SMALLEST_BYTES": block_bytes,
        "_PREPARED_BYTES": 2 * block_bytes,
        "tiering.compressed_source._STEP_BYTES": step_frames * block_bytes,
    }


@contextmanager
def turned(knobs: Knobs) -> Iterator[None]:
    """Let the product have these limits."""
    values = {**_FIXED, **knobs.constants}
    values |= _derived(values["CRC_BLOCK_BYTES"], values["RUN_BLOCKS"], values["_STEP_FRAMES"])
    try:
        for module, constant in _known():
            key = f"{module.removeprefix('tierfs.')}.{constant}"
            setattr(sys.modules[module], constant, values[key] if key in values else values[constant])
        yield
    finally:
        for (module, constant), value in _known().items():
            setattr(sys.modules[module], constant, value)
