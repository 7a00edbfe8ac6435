"""One log that is followed: its open files, its place in them, and its next whole lines."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from tierfs.app.follow import files, rotations
from tierfs.app.follow.earlier_files import EarlierFiles
from tierfs.app.follow.files import OpenFile, Unreadable
from tierfs.app.follow.plan import FileComparison, Match, Plan, PlannedRead, SeenFile, late, plan
from tierfs.app.unpacking import is_compressed
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import ByteRange
from tierfs.engine.metadata import followed
from tierfs.engine.metadata.followed_range import MAX_PROOF_BYTES, FollowedRange

# A line that its writer has begun and not ended is taken as it is after this time.
PARTIAL_S = 5.0

# How long a file that was rotated away is looked for: names change in steps, and a copy may be in the making. With the
# longest time for one whose directory changes all the time.
LOST_S = 2.0
MOST_LOST_S = 30.0

# How long a rotated file stays open for lines of writers that have not opened the new one (a guess).
LINGER_S = 10.0
_MOST_LINGERING = 2

# Of a log without a change the names in its directory are looked at again after this time.
_ANEW_S = 60.0

# The names of a log's files, and which files these are.
_Names = tuple[tuple[str, tuple[int, int]], ...]


@dataclass(frozen=True, slots=True)
class NewLines:
    """Whole lines to append to a log's segment."""

    data: bytes
    """May begin with the end of a line that its file lacks."""
    followed: FollowedRange
    """The place of the lines in their file."""
    expected_offset: int


@dataclass(slots=True)
class _Lingering:
    file: OpenFile
    until_s: float


class LogReader:
    """Reads one log, from where its segment ends. Change nothing but by `look`, `next`, `took` and `reset`."""

    def __init__(self, path: str, segment: str, earlier: EarlierFiles, since_ns: int = 0) -> None:
        """Follow the log at a path; it has yet to be `reset`. A log without a record appeared after `since_ns`."""
        self.path = path
        self.segment = segment
        self._earlier = earlier
        self._since_ns = since_ns
        self._ranges: tuple[FollowedRange, ...] = ()
        self._length = 0
        self._file: OpenFile | None = None
        self._head = b""
        self._reads: deque[PlannedRead] = deque()
        self._is_old_plan = False
        self._is_behind = False
        self._gap = ""
        self._lingering: list[_Lingering] = []
        self._seen: tuple[object, ...] = ()
        self._seen_s = 0.0
        self._is_by_name = False
        self._first_names: _Names | None = None
        self._lost: tuple[object, ...] = ()
        self._lost_s: float | None = None
        self._lost_first_s: float | None = None
        self._unread: PlannedRead | None = None
        self._unread_s = 0.0
        self._broken: set[SeenFile] = set()
        self._passed = ""
        self._partial: tuple[tuple[int, int], int] | None = None
        self._partial_s = 0.0

    @property
    def ranges(self) -> tuple[FollowedRange, ...]:
        """The bytes of the log's files in its segment, the newest last."""
        return self._ranges

    @property
    def is_waiting(self) -> bool:
        """Whether it has to be looked at again soon though nothing changes: for the rest of a line, or a lost file."""
        return self.is_lost or self._partial is not None

    @property
    def is_behind(self) -> bool:
        """Whether it has read all that the last look can vouch for, and wants another one at once."""
        return self._is_behind

    @property
    def is_lost(self) -> bool:
        """Whether a file that continues the log is looked for."""
        return self._lost_s is not None or self._unread is not None

    @property
    def committed_ms(self) -> int:
        """When its last lines were appended; 0 for none yet."""
        return self._ranges[-1].committed_ms if self._ranges else 0

    @property
    def open_files(self) -> int:
        """Number of files that it keeps open."""
        return (self._file is not None) + len(self._lingering)

    def reset(self, ranges: Sequence[FollowedRange], length: int) -> None:
        """Take the place of the log from the store: its ranges, and the length of its stream."""
        self._ranges, self._length = followed.held(ranges, length), length
        self._reads.clear()
        self._gap, self._seen, self._partial = "", (), None
        self._lost, self._lost_s, self._lost_first_s = (), None, None

    def close(self) -> None:
        """Close the files; they are found again by the next look. Idempotent."""
        for file in (self._file, *(each.file for each in self._lingering)):
            if file is not None:
                file.close()
        self._file, self._lingering = None, []
        self._reads.clear()

    def look(self, now_s: float) -> None:
        """Look at the names of the log's files if it has changed. Raises OSError for a log that cannot be read.

        `next` looks at them again, with a later listing of the directory: if they differ, a rename may have hidden a
        file, and the looks count for nothing.
        """
        self._first_names, self._is_behind = None, False
        here = files.look_at(self.path)
        if not self._reads and self._is_changed(here, now_s) and self._continued(here, now_s) is None:
            self._first_names = _names(self._present())

    def next(self, limit: int, now_s: float, *, patient: bool = True) -> NewLines | None:
        """Return the next lines, of at most `limit` bytes unless one line is longer; None: there are none now.

        The same lines are returned until they are `took`. Raises OSError for a log that cannot be read.
        """
        if not self._reads and not self._refresh(now_s, patient=patient):
            return None
        while self._reads:
            read = self._reads[0]
            if self._is_old_plan and not read.start and read.file.path == self.path:
                # It may have been copied and truncated since it was planned, and its first lines be in the copy.
                self._look_again(now_s)
                self._is_behind = True
                return None
            try:
                file = self._open(read.file, now_s)
                if not self._is_continued(file, read):
                    self._look_again(now_s)
                    return None
                piece = self._piece(file, read, limit, now_s)
            except Unreadable as exc:
                self._pass(read, now_s, str(exc))
                return None
            if piece is not None:
                return piece
            self._reads.popleft()
        return None

    def took(self, piece: NewLines, added: ByteRange, now_ms: int) -> None:
        """Continue after lines that were appended."""
        self._length = added.end
        start = added.end - (piece.followed.file_end - piece.followed.file_start)
        new = replace(piece.followed, segment_start=start, committed_ms=now_ms)
        self._ranges = followed.recent(followed.added(self._ranges, new), now_ms)
        self._gap, self._passed, self._partial, self._unread = "", "", None, None
        self._is_old_plan = True
        if self._reads:
            self._reads[0] = replace(self._reads[0], start=new.file_end)

    def _pass(self, read: PlannedRead, now_s: float, why: str) -> None:
        """Look again after a file could not be read; without it, if it does not change for a while."""
        self._reads.clear()
        self._seen = ()
        if self._unread != read:
            self._unread, self._unread_s = read, now_s
        elif now_s - self._unread_s >= LOST_S:
            self._broken.add(read.file)
            self._unread, self._passed = None, f"after byte {read.start} of {read.file.path}: {why}"

    def _look_again(self, now_s: float) -> None:
        """Forget what was planned: the log's files have changed since."""
        self._reads.clear()
        self._seen = ()
        self._lost_s = now_s if self._lost_s is None else self._lost_s

    def _refresh(self, now_s: float, *, patient: bool) -> bool:
        """Plan what to read; return whether there is anything."""
        here = files.look_at(self.path)
        if not self._is_changed(here, now_s):
            return False
        self._is_old_plan = False
        seen, last = self._state(here), self._continued(here, now_s)
        self._is_by_name = here is None or last is None
        if here is not None and last is not None:
            self._read_on(here, last.file_end)
        else:
            present, first = self._present(), self._first_names
            self._first_names = None
            if first is None or first != _names(present):
                self._look_again(now_s)
                return False
            self._take(self._plan(present, now_s, patient=patient), present, now_s)
            seen = self._state(here)
        self._end_lingering(now_s)
        self._seen, self._seen_s = seen, now_s
        if not self._reads:
            self._partial = None
        return bool(self._reads)

    def _is_changed(self, here: SeenFile | None, now_s: float) -> bool:
        return self.is_waiting or self._state(here) != self._seen or now_s - self._seen_s >= _ANEW_S

    def _state(self, here: SeenFile | None) -> tuple[object, ...]:
        """Return what is different once there may be something to read."""
        names = files.modified_ns(os.path.dirname(self.path)) if self._is_by_name else 0
        return (here, names, *(each.file.look() for each in self._lingering))

    def _continued(self, here: SeenFile | None, now_s: float) -> FollowedRange | None:
        """Return the range that the log's file continues if it is still the same; this common case costs no listing."""
        last = followed.newest_file(self._ranges)
        if here is None or last is None or here.identity != (last.device, last.inode):
            return None
        try:
            file = self._open(here, now_s)
        except Unreadable:
            return None
        return last if not file.compressed and files.compare(last, file) is Match.SAME else None

    def _read_on(self, here: SeenFile, start: int) -> None:
        """Plan to read on in the log's file."""
        self._lost_s = self._lost_first_s = None
        self._reads.extend(self._late())
        if here.size > start:
            self._reads.append(PlannedRead(here, start))

    def _late(self) -> tuple[PlannedRead, ...]:
        kept = [each.file.look() for each in self._lingering]
        return late(self._ranges, kept, files.matches_kept({each.file.identity: each.file for each in self._lingering}))

    def _plan(self, present: list[SeenFile], now_s: float, *, patient: bool) -> Plan:
        kept = {file.identity: file for file in (self._file, *(e.file for e in self._lingering)) if file is not None}
        last = followed.newest_file(self._ranges)
        is_last = last is not None and self._file is not None and self._file.identity == (last.device, last.inode)
        match = files.matches_kept(kept, self._head if is_last else b"")
        if self._lost_s is not None and self._lost != self._rotated(present):
            self._lost_s = now_s  # something is still being done to the files
        patient = patient and (self._lost_s is None or now_s - self._lost_s < LOST_S)
        patient = patient and (self._lost_first_s is None or now_s - self._lost_first_s < MOST_LOST_S)
        if last is None:
            present = [file for file in present if file.path == self.path or file.modified_ns >= self._since_ns]
        is_named = self._file is None or self._file.identity in {file.identity for file in present}
        nameless = None if is_named or self._file is None else self._file.look()
        made = plan(self._ranges, present, FileComparison(match, files.is_copy), nameless=nameless, patient=patient)
        return replace(made, reads=(*late(self._ranges, present, match), *made.reads))

    def _take(self, made: Plan, present: list[SeenFile], now_s: float) -> None:
        if made.waits:
            self._lost_s = now_s if self._lost_s is None else self._lost_s
            self._lost_first_s = self._lost_s if self._lost_first_s is None else self._lost_first_s
            self._lost = self._rotated(present)
        else:
            self._lost_s = self._lost_first_s = None
        self._reads.extend(made.reads)
        self._gap = "; ".join(filter(None, (self._passed, made.gap)))

    def _rotated(self, present: list[SeenFile]) -> tuple[SeenFile, ...]:
        return tuple(file for file in present if file.path != self.path)

    def _present(self) -> list[SeenFile]:
        """Return the files of the log that have a name, the oldest first."""
        named: dict[tuple[int, int], SeenFile] = {}
        for directory, name in self._places():
            for each in self._earlier.of(directory, name):
                file = files.look_at(os.path.join(directory, each), compressed=is_compressed(each))
                if file is not None:
                    named.setdefault(file.identity, file)
        here = files.look_at(self.path)
        if here is not None:
            named.pop(here.identity, None)
        present = [file for file in named.values() if file not in self._broken]
        return [*present, here] if here is not None else present

    def _places(self) -> list[tuple[str, str]]:
        """Return the directories and names of the log; where it is a link, also those of the files it leads to."""
        places = [os.path.split(self.path)]
        real = os.path.realpath(self.path)
        if real != self.path:
            places.append(os.path.split(real))
            directory, name = places[-1]
            # The link has been to files that differ in a date, and may have passed over some of them.
            places += [(directory, log) for log, _ in rotations.logs_of(name)]
        return places

    def _open(self, wanted: SeenFile, now_s: float) -> OpenFile:
        """Return the file of a read, open; the one before stays open for a while."""
        if self._file is not None and self._file.identity == wanted.identity:
            return self._file
        for each in self._lingering:
            if each.file.identity == wanted.identity:
                return each.file
        try:
            file = files.opened(wanted)
        except FileNotFoundError as exc:
            raise Unreadable(f"{wanted.path} is gone") from exc
        if self._file is not None:
            self._lingering.append(_Lingering(self._file, now_s + LINGER_S))
        self._file, self._head = file, b""
        self._end_lingering(now_s)  # one plan may read many files
        return file

    def _is_continued(self, file: OpenFile, read: PlannedRead) -> bool:
        """Return whether a file still has the bytes before a read; one that was truncated and filled again has others.

        Between two reads of a log lines of other logs are appended, which may take any time.
        """
        before = self._ranges[-1] if self._ranges else None
        if before is None or (before.device, before.inode, before.file_end) != (*file.identity, read.start):
            return True
        return files.compare(before, file) is Match.SAME

    def _piece(self, file: OpenFile, read: PlannedRead, limit: int, now_s: float) -> NewLines | None:
        """Return lines of a file from the start of a read on; None: there are no whole ones."""
        status = file.look()
        size = limit if read.end is None else min(limit, read.end - read.start)
        data = file.read(read.start, size) if size > 0 else b""
        if not data:
            return None
        whole = data.rfind(b"\n") + 1
        is_followed = any(not later.start for later in islice(self._reads, 1, None))
        if not whole and len(data) < limit and not is_followed and not self._is_due(file, read.start, len(data), now_s):
            return None
        data = data[:whole] if whole else data
        before = self._ranges[-1] if self._ranges else None
        continues = before is not None and (before.device, before.inode, before.file_end) == (
            *file.identity,
            read.start,
        )
        lead = b"\n" if before is not None and before.unended and not continues else b""
        return NewLines(lead + data, replace(self._range(file, read.start, data, status), late=read.late), self._length)

    def _is_due(self, file: OpenFile, start: int, length: int, now_s: float) -> bool:
        """Return whether the line that a file ends with is taken as it is: it has not grown for a while."""
        partial = file.identity, start + length
        if self._partial != partial:
            self._partial, self._partial_s = partial, now_s
        return now_s - self._partial_s >= PARTIAL_S

    def _range(self, file: OpenFile, start: int, data: bytes, status: SeenFile) -> FollowedRange:
        end = start + len(data)
        head = self._head_of(file, start, data)
        tail = data[-MAX_PROOF_BYTES:]
        if len(tail) < min(MAX_PROOF_BYTES, end):
            before = min(start, MAX_PROOF_BYTES - len(tail))
            tail = file.read(start - before, before) + tail
        return FollowedRange(
            path=os.fsencode(file.path),
            device=file.identity[0],
            inode=file.identity[1],
            file_start=start,
            file_end=end,
            head_length=len(head),
            head_crc32c=crc32c(head),
            tail_length=len(tail),
            tail_crc32c=crc32c(tail),
            modified_ns=status.modified_ns,
            gap=self._gap,
            unended=not data.endswith(b"\n"),
        )

    def _head_of(self, file: OpenFile, start: int, data: bytes) -> bytes:
        """Return the first bytes of the file that is read, and keep them."""
        wanted = min(MAX_PROOF_BYTES, start + len(data))
        if file is not self._file:
            return file.read(0, wanted)
        if len(self._head) < wanted or start == 0:
            self._head = data[:wanted] if start == 0 else file.read(0, wanted)
        return self._head[:wanted]

    def _end_lingering(self, now_s: float) -> None:
        kept: list[_Lingering] = []
        for each in self._lingering:
            if each.until_s > now_s or any(read.file.identity == each.file.identity for read in self._reads):
                kept.append(each)
            else:
                each.file.close()
        for each in kept[:-_MOST_LINGERING]:
            each.file.close()
        self._lingering = kept[-_MOST_LINGERING:]


def _names(present: Sequence[SeenFile]) -> _Names:
    return tuple((file.path, file.identity) for file in present)
