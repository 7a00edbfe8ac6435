"""Proves objects whose etag differs from its record's.

Such an object is usually a copy, and its bytes prove it: a small object is read whole, of a larger one the first block,
one in the middle and the last, where a copy that was cut or mixed up shows. `--read` and every read check the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Pool
from tierfs.base.words.errors import DataLoss, NotFound, PermissionDenied, Unavailable
from tierfs.base.words.names import printable
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ByteRange, LocationId
from tierfs.base.words.units import count
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.reading.etags import Etags
from tierfs.reading.fetch.checked_blocks import BlockDiffers
from tierfs.reading.verified import VerifiedReader, own_sum
from tierfs.upkeep.check.repair.checksums import Located

# One request for all of it takes hardly longer than for a block (a guess).
_READ_WHOLE_BYTES = MIB

_IN_PARALLEL = 8


@dataclass(frozen=True, slots=True)
class Changed:
    """An object whose etag differs, as it was listed."""

    record: ObjectRecord
    stored: StoredObject


class ChangedObjects:
    """Proves objects whose etag differs, and adopts their new etags if `adopts`."""

    def __init__(
        self,
        metadata: MetadataStore,
        storage_of: Callable[[LocationId], ChunkStorage],
        *,
        adopts: bool = False,
        reads: bool = True,
    ) -> None:
        """With `reads` False no blocks are read, because the caller will read all bytes anyway."""
        self._metadata = metadata
        self._etags = Etags(metadata)
        # One right block proves its etag to a reader: these are never adopted, because the next sample may be wrong.
        self._reader = VerifiedReader(metadata, storage_of)
        self._adopts = adopts
        self._reads = reads
        self.objects = 0
        """Objects with another etag that were not proved wrong."""
        self.bytes = 0
        self.adopted = 0

    def prove(self, changed: Sequence[Changed]) -> Iterator[tuple[ObjectRecord, str]]:
        """Yield the objects that are wrong, each with the reason. Raises Unavailable when the tier does not answer."""
        if not changed:
            return
        with Pool(_IN_PARALLEL, "tierfs-check") as pool:
            for each, why in zip(changed, pool.in_order(self._prove, changed), strict=True):
                if why is not None:
                    yield each.record, why
                    continue
                self.objects += 1
                self.bytes += each.record.stored_bytes
        if self._adopts:
            self.adopted += self._etags.adopt()

    @property
    def summary(self) -> str:
        """Return one line about the objects that are right."""
        proof = "--read checks their bytes" if not self._reads else "the blocks read from them match their checksums"
        if not self._adopts:
            done = "; reads, check PATH and --repair adopt the etags"
        elif self._reads:
            done = f"; adopted {count(self.adopted, 'etag')}"
        else:  # the caller adopts them after its reads
            done = ", and --repair adopts the etags of those that match"
        subject = f"{count(self.objects, 'object')} of {self.bytes} bytes"
        return f"{subject} whose etags differ from the record, as in copies; {proof}{done}"

    def _prove(self, changed: Changed) -> str | None:
        """Return the reason an object is wrong, or None if the blocks read are right."""
        if not self._reads:
            return None
        record, stored = changed.record, changed.stored
        for etags in (self._reader.etags, self._etags):
            etags.meet(record, stored.etag, stored.length_bytes)
        differs = f"its etag is {printable(stored.etag)}, its record says {printable(record.etag)}"
        try:
            for sample in _samples(record.length):
                self._reader.read(record, sample, self._reader.grid(record, sample), None)
        except BlockDiffers as exc:
            bad = exc.block
            return f"{differs}, and its bytes {bad.start} to {bad.end} do not match their checksums"
        except (DataLoss, NotFound) as exc:
            return f"{differs}, and it cannot be read: {exc}"
        except (Unavailable, PermissionDenied):
            if not record.foreign:
                raise
            return None  # its place does not answer, which proves nothing
        self._etags.proved(record, stored.etag)
        return None

    def saves(self, located: Located) -> bool:
        """Return whether a chunk of an object that differs is right by its own checksum, as most of a pack's are."""
        own = own_sum(PlacedChunk(located.chunk, located.object))
        if own is None or not located.object.packed:
            return False
        with suppress(NotFound, DataLoss):
            # Twice: a transfer damages bytes once.
            return any(self._reader.by_itself(located.object, own, ByteRange(0, 0)) is not None for _ in range(2))
        return False


def _samples(length: int) -> list[ByteRange]:
    """Return the ranges of an object to read."""
    if length <= _READ_WHOLE_BYTES:
        return [ByteRange(0, length)]
    last = (length - 1) // CRC_BLOCK_BYTES
    return [
        ByteRange(block * CRC_BLOCK_BYTES, min((block + 1) * CRC_BLOCK_BYTES, length)) for block in (0, last // 2, last)
    ]
