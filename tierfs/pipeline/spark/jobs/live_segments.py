"""The bytes that a store still has, by the births of segments: rows of all others were dropped.

A segment in the trash has its bytes until it is deleted for good. One that was concatenated has them in its target.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import SegmentKind, SegmentStatus
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction

_BIRTH, _FIRST = "_tierfs_birth", "_tierfs_first"


@dataclass(frozen=True, slots=True)
class LiveSegments:
    """Births in ascending order, and of each the first position that is there; 0 for entries of a ledger."""

    births: Any
    firsts: Any
    unclear: tuple[tuple[int, int], ...] = ()
    """First and last births of segments that were concatenated so often that their places are not known."""

    def has_lost(self, before: LiveSegments) -> bool:
        """Return whether anything that was there before is not there now."""
        places = np.searchsorted(self.births, before.births)
        if not len(self.births):
            return bool(len(before.births))
        known = self.births[np.minimum(places, len(self.births) - 1)] == before.births
        return not known.all() or bool((self.firsts[places] > before.firsts).any())

    def marked(self, spark: SparkSession, rows: DataFrame, birth: str, position: str) -> tuple[DataFrame, Column]:
        """Return rows, and the condition that the store has dropped a row. Rows of other programs have no birth."""
        columns = {_BIRTH: pa.array(self.births), _FIRST: pa.array(self.firsts)}
        live = spark.createDataFrame(pa.table(columns), f"{_BIRTH} long, {_FIRST} long")
        joined = rows.join(F.broadcast(live), F.col(birth) == F.col(_BIRTH), "left")
        gone = F.col(_FIRST).isNull() | (F.col(position) < F.col(_FIRST))
        for first, last in self.unclear:
            gone &= ~F.col(birth).between(first, last)
        return joined, F.coalesce(F.col(birth).isNotNull() & gone, F.lit(False))


def live_segments(txn: ReadTransaction) -> LiveSegments:
    """Return what a store has in a transaction: one pass over all of its segments."""
    firsts: dict[int, int] = {}
    unclear = []
    for _, segment in txn.scan(SEGMENTS):
        if segment.status is SegmentStatus.DELETED:
            continue
        for birth, first in _places(segment):
            firsts[birth] = min(first, firsts.get(birth, first))
        unclear += [(join.birth, join.last_birth) for join in segment.joins if join.is_of_several]
    births = np.fromiter(sorted(firsts), np.int64, len(firsts))
    return LiveSegments(
        births, np.fromiter((firsts[birth] for birth in births.tolist()), np.int64, len(births)), tuple(unclear)
    )


def _places(segment: SegmentRecord) -> Iterator[tuple[int, int]]:
    """Yield births, and the first position of each: of a segment, and of those that were concatenated to it."""
    start = segment.start_offset if segment.kind is SegmentKind.BYTES else 0  # entries of a ledger stay together
    yield segment.birth, start
    for join in segment.joins:
        if not join.is_of_several and join.end > start:
            yield join.birth, join.source_start + max(0, start - join.start)
