"""Prove that the bytes of an adopted segment are those that were linked before, in whatever objects they are now.

The recorded CRC32Cs are of the blocks of the objects that held the bytes. A foreign system joins objects, cuts one
where its successor begins, and copies the rest of one: a block may then be in several objects. Each part that is read
sums up its pieces of blocks; pieces of several parts are joined before they are compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from tierfs.base.bytes.checksum import Stretch, cut_at_lines, joined
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import AlreadyExists
from tierfs.base.words.names import printable
from tierfs.base.words.types import CRC_BLOCK_BYTES, ByteRange

_CRC_BYTES = 4


@dataclass(frozen=True, slots=True)
class Proof:
    """Bytes of a segment that were linked before."""

    name: str
    """The object that held them."""
    range: ByteRange
    """In the segment."""
    packed: bytes
    """CRCs of their blocks, counted from the first byte of the range."""

    def block(self, number: int) -> ByteRange:
        """Return the bytes of a block."""
        start = self.range.start + number * CRC_BLOCK_BYTES
        return ByteRange(start, min(start + CRC_BLOCK_BYTES, self.range.end))

    @property
    def blocks(self) -> int:
        """Number of its blocks."""
        return len(self.packed) // _CRC_BYTES

    def crc32c(self, number: int) -> int:
        """Return the CRC of a block."""
        return int.from_bytes(self.packed[number * _CRC_BYTES : (number + 1) * _CRC_BYTES], "big")


@dataclass(frozen=True, slots=True)
class BlockPiece:
    """A part of a block."""

    proof: Proof
    number: int
    """Of the block."""
    at: int
    """Its place in the segment."""
    stretch: Stretch
    name: str
    """The object that holds it."""
    object_start: int
    """Offset of the segment at which that object begins."""


@dataclass(frozen=True, slots=True)
class Proved:
    """Result of a comparison of one part."""

    blocks: int = 0
    """Whole blocks, which are equal."""
    pieces: tuple[BlockPiece, ...] = ()
    """Pieces of others."""


NOTHING_PROVED = Proved()


class Comparison:
    """Sums up the proofs' bytes of a part while they pass."""

    def __init__(self, proofs: Sequence[Proof], name: str, object_start: int, start: int) -> None:
        """Prepare for the bytes of the object `name` from `start` on; its first byte is at `object_start`."""
        self._proofs = proofs
        self._name = name
        self._object_start = object_start
        self._at = object_start + start
        self._blocks = 0
        self._pieces: list[BlockPiece] = []

    def passed(self, steps: Iterable[memoryview]) -> Iterator[memoryview]:
        """Yield the steps of the part. Raises AlreadyExists for a block that differs."""
        for step in steps:
            here = ByteRange(self._at, self._at + len(step))
            for proof in self._proofs:
                common = here.intersect(proof.range)
                if common:
                    self._sum_up(proof, common, step[common.start - here.start : common.end - here.start])
            yield step
            self._at = here.end

    def proved(self) -> Proved:
        """Return the result, after the last step."""
        return Proved(self._blocks, tuple(self._pieces))

    def _sum_up(self, proof: Proof, held: ByteRange, data: memoryview) -> None:
        for at, stretch in cut_at_lines(data, held.start - proof.range.start):
            number = (held.start + at - proof.range.start) // CRC_BLOCK_BYTES
            piece = BlockPiece(proof, number, held.start + at, stretch, self._name, self._object_start)
            last = self._pieces[-1] if self._pieces else None
            if last is not None and (last.proof, last.number) == (proof, number):
                self._pieces.pop()
                piece = BlockPiece(proof, number, last.at, last.stretch.then(stretch), self._name, self._object_start)
            if piece.stretch.length_bytes == proof.block(number).length_bytes:
                _require_equal([piece])
                self._blocks += 1
            else:
                self._pieces.append(piece)


def require_proved(proofs: Iterable[Proof], proved: Sequence[Proved]) -> None:
    """Raise AlreadyExists, naming the object, unless all bytes are those that were linked before."""
    blocks: dict[tuple[int, int], list[BlockPiece]] = defaultdict(list)
    for piece in sorted((piece for part in proved for piece in part.pieces), key=lambda piece: piece.at):
        blocks[piece.proof.range.start, piece.number].append(piece)
    for pieces in blocks.values():
        _require_equal(pieces)
    expected = sum({proof.range.start: proof.blocks for proof in proofs}.values())
    compared = len(blocks) + sum(part.blocks for part in proved)
    assert compared == expected, f"{compared} of {expected} blocks were compared"


def _require_equal(pieces: Sequence[BlockPiece]) -> None:
    """Raise AlreadyExists unless pieces in order are a whole block, as it was."""
    piece = pieces[-1]
    proof, number = piece.proof, piece.number
    if joined(held.stretch for held in pieces) == Stretch(proof.block(number).length_bytes, proof.crc32c(number)):
        return
    block = proof.block(number)
    differ = f"they differ in the {CRC_BLOCK_BYTES >> 10} KiB from byte {block.start} on"
    remedy = "if the new bytes are right, remove the segment and adopt it again"
    new, old = printable(piece.name), printable(proof.name)
    if piece.name == proof.name:
        raise AlreadyExists(f"{new} differs from the adopted bytes: {differ}", remedy=remedy)
    cut = ""
    if proof.range.start < piece.object_start < proof.range.end:
        cut = f"{new} starts at byte {piece.object_start}, in the middle of {old}, and "
    raise AlreadyExists(f"{cut or f'{new} '}differs from the bytes adopted from {old}: {differ}", remedy=remedy)
