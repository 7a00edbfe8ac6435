"""The bytes that compression is measured with are as compressible as people's own, and the same each time."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.benchmarks.compression import texts
from tests.benchmarks.compression.bounds import sheet
from tests.benchmarks.compression.material import OFF, ZSTD, write_text
from tests.benchmarks.compression.reading import READING
from tests.benchmarks.compression.site import STORED, TIERFS
from tests.benchmarks.reading.figures import RATE, Answer, Part
from tests.benchmarks.reading.peers import JUICE, JUICE_ZSTD
from tests.benchmarks.reading.s3_questions import RAW
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB
from tierfs.engine.frames import zstd

LEVEL = 3


@pytest.mark.parametrize(("kind", "least", "most"), [(texts.LOGS, 6, 8), (texts.JSON, 5.5, 7), (texts.RANDOM, 0.99, 1)])
def test_frames_of_these_bytes_are_as_small_as_those_of_real_ones(
    tmp_path: Path, kind: str, least: float, most: float
) -> None:
    file = write_text(kind, tmp_path, 4 * MIB)
    blocks = [file.expected(start, CRC_BLOCK_BYTES) for start in range(0, file.size_bytes, CRC_BLOCK_BYTES)]
    stored_bytes = sum(len(zstd.compressed(block, LEVEL)) for block in blocks)
    assert least <= file.size_bytes / stored_bytes <= most


@pytest.mark.parametrize("kind", texts.KINDS)
def test_a_seed_gives_the_same_bytes_and_another_one_others(kind: str) -> None:
    one, same, other = (list(islice(texts.KINDS[kind](seed), 2)) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_a_file_gives_its_bytes_in_order(tmp_path: Path) -> None:
    file = write_text(texts.LOGS, tmp_path, 9 * MIB + 5)
    data = file.path.read_bytes()
    assert len(data) == file.size_bytes
    assert b"".join(file.blocks()) == data
    assert file.expected(MIB, 100) == data[MIB : MIB + 100]


def test_a_sheet_compares_with_the_best_peer_and_marks_what_was_missed() -> None:
    logs = Part(texts.LOGS, RAW)
    rates = {RAW: 1000.0, TIERFS[OFF]: 900.0, TIERFS[ZSTD]: 1300.0, JUICE.label: 700.0, JUICE_ZSTD.label: 1000.0}
    for subject, rate in rates.items():
        logs.add(subject, {RATE: rate})
    logs.add(TIERFS[ZSTD], {STORED: 0.13})
    lines = sheet(Answer(READING, "Reading", "", 64 * MIB, 1, (logs,))).splitlines()
    assert "* logs, tierfs, zstd, MB/s of boto3 GETs: wanted ≥ 1.2, found 1.300" in lines
    assert "* **logs, tierfs, zstd, MB/s of the best peer: wanted ≥ 1.5, found 1.300: MISSED**" in lines
    assert "* logs, tierfs, zstd, stored/plain: wanted ≤ 0.1667, found 0.130" in lines
