"""ReadHandle: one open segment, read from the snapshot it holds.

A read is answered at once if possible, else piece by piece from the candidates. When a file or object named by the
snapshot is gone, the newest snapshot is tried once, then the other tier, then the read fails. When no candidate answers
and one of them may later, the read tries again until its deadline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.options.precedence import Effective
from tierfs.base.system.metrics import MetricName, MetricSink
from tierfs.base.words import names
from tierfs.base.words.errors import (
    Archived,
    BudgetSpent,
    DataLoss,
    InternalError,
    NotFound,
    PermissionDenied,
    TierfsError,
    Unavailable,
    unexpected,
)
from tierfs.base.words.types import MIB, ByteRange, Payer, ReadPriority, Tier
from tierfs.engine.metadata.layout import Layout, PlacedChunk
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.reading.cold import ColdRead
from tierfs.reading.cold_path import ColdPath
from tierfs.reading.copies import CopyMarks
from tierfs.reading.local import LocalPath
from tierfs.reading.patience import Patience, Unanswered, Waits
from tierfs.reading.view import Piece, SegmentView, in_object, resolve

log = logging.getLogger(__name__)

# Length of the remembered resolved piece: about a chunk.
_RECENT_BYTES = 64 * MIB


class ReadHandle:
    """One open segment. Reads may overlap; close it once."""

    def __init__(
        self,
        view: SegmentView,
        priority: Effective[ReadPriority],
        local: LocalPath,
        cold: ColdPath,
        deadline_s: float,
        metrics: MetricSink,
        marks: CopyMarks,
        waits: Waits,
        payer: Payer,
        closed: Callable[[ReadHandle], None],
    ) -> None:
        self._view = view
        self._tiers = priority.value.tiers
        self._local = local
        self.cold = cold
        self._deadline_s = deadline_s
        self._metrics = metrics
        self._marks = marks
        self._waits = waits
        self._payer = payer
        self._closed = closed
        self._unanswered = Unanswered()
        self.priority = priority
        self.served_from: Tier | None = None
        self._recent: tuple[Layout, Piece] | None = None

    @property
    def segment(self) -> SegmentRecord:
        """The newest record this handle has seen."""
        return self._view.segment

    async def read(self, offset: int, size_bytes: int) -> Buffer:
        """Return bytes [offset, offset + size) of the segment, cut at its end; empty at and after it.

        The buffer is valid until the caller's next await. Raises Fenced (ESTALE) below the start offset
        or when the segment was deleted, BudgetSpent for a user who may read nothing more from the cold tier now,
        Unavailable when no tier answers within the deadline, DataLoss when no good copy is left, InternalError for a
        fault of tierfs itself.
        """
        self._view.refresh()
        wanted = self._view.clamp(offset, size_bytes)
        if not wanted:
            return b""
        whole = self._whole_piece(wanted)
        now = None if whole is None else self._without_waiting(whole, wanted)
        if now is not None:
            return now
        self._unanswered.check(wanted)
        with Patience(self._view, wanted, self._waits, self._payer.uid) as patience:
            try:
                with trio.fail_after(self._deadline_s):
                    return await self._read_pieces(wanted, whole, patience)
            except trio.TooSlowError as exc:
                gate = self.cold.fetcher.gate
                error = (None if gate is None else gate.late(self._payer.uid)) or patience.ended(self._deadline_s)
                self._unanswered.add(wanted, error)
                raise error from exc

    def read_now(self, offset: int, size_bytes: int) -> Buffer | None:
        """Do as `read` if memory or the page cache holds all bytes; return None if the read would wait.

        The buffer is valid until the loop's next step.
        """
        self._view.refresh()
        wanted = self._view.clamp(offset, size_bytes)
        if not wanted:
            return b""
        whole = self._whole_piece(wanted)
        return None if whole is None else self._without_waiting(whole, wanted)

    def close(self) -> None:
        """Stop reading ahead for this handle."""
        self._closed(self)

    def _without_waiting(self, whole: Piece, wanted: ByteRange) -> memoryview | None:
        """Return all bytes if they are in one chunk and in memory or the page cache; keeps read-ahead going.

        An unexpected error is logged, and left to a read that may wait: it has other candidates.
        """
        placed = whole.candidates[0]
        try:
            if placed.object.tier is Tier.LOCAL:
                growing = self.segment.active and placed.chunk.next == 0
                data = self._local.read_now(placed, in_object(wanted, placed), growing=growing)
            else:
                data = ColdRead(self.cold, self._view, self._tiers, wanted, placed, wanted, self._payer).now()
        except TierfsError:
            raise
        except Exception as exc:
            unexpected(exc, self._view.name)
            return None
        if data is not None:
            self.served_from = placed.object.tier
            self._marks.served(self.segment.id, placed)
        return data

    def _whole_piece(self, wanted: ByteRange) -> Piece | None:
        """Return a piece with candidates for all of `wanted`. Remembered: the next read is usually in the same one."""
        layout = self._view.layout(wanted.start)
        if self._recent is not None and self._recent[0] is layout and self._recent[1].range.contains(wanted):
            return self._recent[1]
        if wanted.end > layout.window.end:
            return None
        reach = ByteRange(wanted.start, min(layout.window.end, wanted.start + _RECENT_BYTES))
        piece = next(resolve(layout, reach, self._tiers))
        if piece.range.end < wanted.end or not piece.candidates:
            return None
        self._recent = (layout, piece)
        return piece

    async def _read_pieces(self, wanted: ByteRange, whole: Piece | None, patience: Patience) -> Buffer:
        parts: list[Buffer] = []
        at = wanted.start
        while at < wanted.end:
            rest = ByteRange(at, wanted.end)
            piece = self._piece(rest) if whole is None else Piece(rest, whole.candidates)
            data = await self._read_piece(piece, wanted, patience)
            at += len(data)
            if len(data) == wanted.length_bytes:
                return data
            parts.append(bytes(data))  # the next await may reuse the memory
            whole = None  # the snapshot may have changed meanwhile
        return b"".join(parts)

    def _piece(self, wanted: ByteRange) -> Piece:
        """Return the first piece of a range, by the current snapshot."""
        layout = self._view.layout(wanted.start)
        return next(resolve(layout, ByteRange(wanted.start, min(wanted.end, layout.window.end)), self._tiers))

    async def _read_piece(self, piece: Piece, wanted: ByteRange, patience: Patience) -> Buffer:
        """Return a piece from the best candidate that delivers; retry until one does or none ever will."""
        while True:
            try:
                return await self._try_piece(piece, wanted)
            except Unavailable as exc:
                if not piece.candidates:
                    raise  # excluded by the policy, which waiting does not change
                await patience.pause(exc)
            self._view.renew()
            self._view.require(piece.range.start)
            piece = self._piece(piece.range)

    async def _try_piece(self, piece: Piece, wanted: ByteRange) -> Buffer:
        """Return a piece from the best candidate that delivers; renew the snapshot once if a copy is gone."""
        try:
            return await self._from_candidates(piece, wanted, renewed=False)
        except NotFound:
            self._view.renew()
            self._view.require(piece.range.start)
            try:
                return await self._from_candidates(self._piece(piece.range), wanted, renewed=True)
            except NotFound as exc:
                raise DataLoss(f"{self._view.name}: {exc}", remedy="run: tierfs check") from exc

    async def _from_candidates(self, piece: Piece, wanted: ByteRange, *, renewed: bool) -> Buffer:
        """Return a piece from the first candidate that delivers.

        Raises NotFound for a copy deleted since the snapshot, which is not a failure of its tier; Unavailable when a
        candidate may deliver later; else the error of the first one.
        """
        if not piece.candidates:
            raise self._no_copy(piece.range)
        first: TierfsError | None = None
        passing: Unavailable | None = None
        for placed in piece.candidates:
            try:
                data = await self._from_candidate(placed, piece.range, wanted)
            except Exception as exc:
                if isinstance(exc, NotFound) and not renewed:
                    raise
                error = unexpected(exc, self._view.name)
                if isinstance(exc, InternalError):  # of a fetch, which knows the object alone
                    error = InternalError(f"{self._view.name}: {exc}", remedy=exc.remedy)
                if isinstance(exc, Archived):
                    thaw = f"run: tierfs thaw --wait {names.as_word(self._view.path)}"
                    error = Archived(f"{self._view.name}: {exc}", remedy=thaw)
                if isinstance(error, PermissionDenied):
                    self._waits.refused = str(error)
                first = first or error
                self._marks.failed(self.segment.id, placed, error)
                if isinstance(error, Unavailable):
                    passing = passing or error
                # A spent budget is logged once for its user: budgets.py.
                level = logging.DEBUG if isinstance(error, BudgetSpent) else logging.INFO
                log.log(level, "%s: %s failed: %s", self._view.name, placed.object.tier.name.lower(), error)
                continue
            self.served_from = placed.object.tier
            if placed.object.tier is Tier.COLD:
                self._waits.refused = ""
            self._marks.served(self.segment.id, placed)
            if first is not None:
                self._fell_back(placed, first)
            return data
        assert first is not None
        raise passing or first

    async def _from_candidate(self, placed: PlacedChunk, piece: ByteRange, wanted: ByteRange) -> memoryview:
        if placed.object.tier is Tier.LOCAL:
            return await self._local.read(placed, in_object(piece, placed))
        return await ColdRead(self.cold, self._view, self._tiers, wanted, placed, piece, self._payer).bytes()

    def _no_copy(self, lost: ByteRange) -> TierfsError:
        tiers = " or ".join(tier.name.lower() for tier in self._tiers)
        if len(self._tiers) == 1:
            return Unavailable(
                f"{self._view.name}: bytes {lost.start} to {lost.end} are not in the {tiers} tier, and the read "
                f"priority is {self.priority.value} ({self.priority.origin})",
                remedy="read with another --read-priority",
            )
        return DataLoss(f"{self._view.name}: bytes {lost.start} to {lost.end} are lost")

    def _fell_back(self, placed: PlacedChunk, error: TierfsError) -> None:
        tier = placed.object.tier.name.lower()
        self._metrics.count(MetricName.READ_FALLBACKS, tier=tier)
        log.warning("%s is read from the %s tier instead: %s", self._view.name, tier, error)
