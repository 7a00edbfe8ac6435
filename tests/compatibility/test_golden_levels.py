"""A bucket with levels, as the first version that writes them left it, stays readable, and its form the same."""

from __future__ import annotations

import json
from base64 import b85decode
from pathlib import Path

import pytest
from cramjam import zstd

from tests.app.recovery.recovering import recovered
from tests.compatibility.other_reader import read_segments
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.journal.names import level_of
from tierfs.engine.metadata import directories, frames
from tierfs.engine.metadata.tables import SEGMENTS

GOLDEN = Path(__file__).with_name("golden_levels.json")
BUCKET = {name: b85decode(data) for name, data in json.loads(GOLDEN.read_text()).items()}
"""A state, a level in two copies, and one slot after them."""

CONTENTS = {
    name: f"bytes of {name}".encode()
    for name in [*(f"state/{number}" for number in range(3)), *(f"level/{number}" for number in range(20)), "slot/0"]
}
MANIFEST = "journal/checkpoint-00000000000000000003"


def test_another_program_reads_levels() -> None:
    assert read_segments(list(BUCKET), BUCKET.__getitem__) == CONTENTS


@pytest.mark.parametrize("without", ["", "0-part"])
def test_levels_are_recovered_also_from_a_copy(tmp_path: Path, without: str) -> None:
    cold = MemoryStorage()
    for name, data in BUCKET.items():
        if not (without and name.endswith("-000000") and f"{name}.copy" in BUCKET):
            cold.put(name, BufferSource(data))
    with recovered(tmp_path / "new", cold) as found, found.store.metadata.read() as txn:
        lengths = {directories.full_name(txn, row): row.length for _, row in txn.scan(SEGMENTS)}
        assert (found.warnings, found.checkpoint_slot) == ((), 3)
    assert lengths == {name: len(data) for name, data in CONTENTS.items()}


@pytest.mark.parametrize("name", [MANIFEST, *(name for name in BUCKET if level_of(name) is not None)])
def test_a_message_that_is_written_again_has_its_bytes(name: str) -> None:
    """The library may compress them differently."""
    parse = frames.parse_manifest if name == MANIFEST else frames.parse_part
    data = BUCKET[name]
    assert data[:8] == b"TFSJ\0\0\0\2"
    again = frames.compressed_frame(parse(data, name))
    assert (again[:8], bytes(zstd.decompress(again[20:]))) == (data[:8], bytes(zstd.decompress(data[20:])))
