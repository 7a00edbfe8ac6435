"""Objects with another etag than their records tell: copies as a rule, whose bytes prove it.

Of each some blocks are read: all of a small one, else the first, one in the middle and the last, where a copy that
was cut or mixed up shows. `--deep` and every read check the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tierfs.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.errors import DataLoss, NotFound, PermissionDenied, Unavailable
from tierfs.metadata import checksums
from tierfs.metadata.records import ObjectRecord
from tierfs.metadata.store import MetadataStore
from tierfs.names import printable
from tierfs.parallel import Pool
from tierfs.reading.etags import Etags
from tierfs.reading.grid import grid_of
from tierfs.types import CRC_BLOCK_BYTES, MIB, ByteRange, LocationId
from tierfs.units import count

_READ_WHOLE_BYTES = MIB
"""One request for all of it takes hardly longer than for a block (a guess)."""

_IN_PARALLEL = 8


@dataclass(frozen=True, slots=True)
class Changed:
    """An object whose etag differs, as it was found."""

    holder: ObjectRecord
    found: StoredObject


class ChangedObjects:
    """Proves objects, and has their new etags adopted if it is told to."""

    def __init__(
        self,
        metadata: MetadataStore,
        storage_of: Callable[[LocationId], ChunkStorage],
        *,
        adopts: bool = False,
        reads: bool = True,
    ) -> None:
        """`reads`: no when somebody else will read all bytes anyway."""
        self._metadata = metadata
        self._storage_of = storage_of
        self._etags = Etags(metadata)
        self._adopts = adopts
        self._reads = reads
        self.objects = 0
        """How many have another etag and were not found wrong."""
        self.bytes = 0
        self.adopted = 0

    def prove(self, changed: Sequence[Changed]) -> Iterator[tuple[ObjectRecord, str]]:
        """Those that are wrong, and why. Raises Unavailable when the tier does not answer."""
        if not changed:
            return
        with Pool(_IN_PARALLEL, "tierfs-fsck") as pool:
            for one, why in zip(changed, pool.in_order(self._prove, changed), strict=True):
                if why is not None:
                    yield one.holder, why
                    continue
                self.objects += 1
                self.bytes += one.holder.length
        if self._adopts:
            self.adopted += self._etags.adopt()

    @property
    def summary(self) -> str:
        """What is to say of those that are right."""
        how = "their bytes are read by --deep" if not self._reads else "blocks that were read of them prove right"
        done = (
            f"; adopted {count(self.adopted, 'etag')}"
            if self._adopts
            else "; reads, verify and --repair adopt the etags"
        )
        what = f"{count(self.objects, 'object')} of {self.bytes} bytes"
        return f"{what} with other etags than recorded, as copies have them; {how}{done}"

    def _prove(self, changed: Changed) -> str | None:
        """Why an object is wrong; None when what was read of it is right."""
        if not self._reads:
            return None
        holder, found = changed.holder, changed.found
        self._etags.meet(holder, found.etag, found.length_bytes)
        told = f"its etag is {printable(found.etag)}, its record says {printable(holder.etag)}"
        try:
            for span in _samples(holder.length):
                bad = self._bad(holder, span)
                if bad is not None:
                    return f"{told}, and its bytes {bad.start} to {bad.end} do not match their checksums"
        except (DataLoss, NotFound) as exc:
            return f"{told}, and it cannot be read: {exc}"
        except (Unavailable, PermissionDenied):
            if not holder.foreign:
                raise
            return None  # its place does not answer: nothing is known of it
        self._etags.proved(holder, found.etag)
        return None

    def _bad(self, holder: ObjectRecord, span: ByteRange) -> ByteRange | None:
        """The first block of a range that is wrong."""
        with self._metadata.read() as txn:
            grid = grid_of(checksums.runs_covering(txn, holder.id, span), span, holder.length)
        view = memoryview(bytearray(grid.range.length_bytes))
        self._etags.read_into(self._storage_of(holder.location_id), holder, grid.range.start, view)
        return grid.first_bad(view, grid.range.start, 0, grid.range.end)[0]


def _samples(length: int) -> list[ByteRange]:
    """Which ranges of an object to read."""
    if length <= _READ_WHOLE_BYTES:
        return [ByteRange(0, length)]
    last = (length - 1) // CRC_BLOCK_BYTES
    return [
        ByteRange(block * CRC_BLOCK_BYTES, min((block + 1) * CRC_BLOCK_BYTES, length)) for block in (0, last // 2, last)
    ]
