"""What is read next of a log, from what the store and the directory have: each rule alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from tierfs.app.follow.plan import FileComparison, Match, Plan, PlannedRead, SeenFile, late, plan
from tierfs.engine.metadata.followed_range import FollowedRange

OLD, ROTATED, LOG = "app.log.2", "app.log.1", "app.log"


def file(path: str, inode: int, size: int = 300, modified_ns: int = 0, *, compressed: bool = False) -> SeenFile:
    return SeenFile(path, 1, inode, size, modified_ns or inode, compressed)


def part(inode: int, end: int, modified_ns: int = 0, *, late: bool = False) -> FollowedRange:
    return FollowedRange(
        path=b"", device=1, inode=inode, file_end=end, head_length=1, modified_ns=modified_ns or inode, late=late
    )


@dataclass
class Bytes:
    """How files compare: those with the inode of a range are the same unless something else is said."""

    of: dict[int, Match] = field(default_factory=dict)
    copies: tuple[tuple[str, str], ...] = ()

    def match(self, known: FollowedRange, seen: SeenFile) -> Match:
        return self.of.get(seen.inode, Match.SAME if known.inode == seen.inode else Match.OTHER)

    def plan(
        self,
        known: list[FollowedRange],
        files: list[SeenFile],
        nameless: SeenFile | None = None,
        *,
        patient: bool = True,
    ) -> Plan:
        compared = FileComparison(self.match, lambda copy, other: (copy.path, other.path) in self.copies)
        return plan(known, files, compared, nameless=nameless, patient=patient)


def reads(made: Plan) -> list[tuple[str, int, int | None]]:
    return [(each.file.path, each.start, each.end) for each in made.reads]


def test_a_renamed_file_is_read_to_its_end_before_the_new_one() -> None:
    files = [file(OLD, 1), file(ROTATED, 2), file(LOG, 3)]
    assert reads(Bytes().plan([part(1, 300), part(2, 100)], files)) == [(ROTATED, 100, None), (LOG, 0, 300)]


def test_the_newest_file_is_read_as_far_as_it_was_seen() -> None:
    """What is written to it later may follow lines of the one before it that are not read yet."""
    files = [file(OLD, 1), file(ROTATED, 2), file(LOG, 3, 70)]
    assert reads(Bytes().plan([part(1, 100)], files)) == [(OLD, 100, None), (ROTATED, 0, None), (LOG, 0, 70)]
    assert reads(Bytes().plan([part(1, 100)], [file(OLD, 1), file(ROTATED, 2), file(LOG, 3, 0)])) == [
        (OLD, 100, None),
        (ROTATED, 0, 300),
    ]


def test_a_copy_continues_a_file_that_was_truncated() -> None:
    truncated = Bytes({3: Match.OTHER, 2: Match.SAME})
    files = [file(OLD, 1), file(ROTATED, 2, modified_ns=3), file(LOG, 3, 50)]
    assert reads(truncated.plan([part(3, 100)], files)) == [(ROTATED, 100, None), (LOG, 0, 50)]


def test_a_copy_that_is_being_made_is_read_in_the_log_itself() -> None:
    copied = Bytes(copies=((ROTATED, LOG),))
    files = [file(OLD, 1), file(ROTATED, 2, 257), file(LOG, 3)]
    assert reads(copied.plan([part(1, 100)], files)) == [(OLD, 100, None), (LOG, 0, 300)]


def test_two_short_files_with_the_same_beginning_are_two_after_a_while() -> None:
    alike = Bytes(copies=((ROTATED, LOG),))
    files = [file(OLD, 1), file(ROTATED, 2, 256), file(LOG, 3)]
    assert (reads(alike.plan([part(1, 300)], files)), alike.plan([part(2, 1)], files[1:]).waits) == (
        [(OLD, 300, None)],
        False,
    )
    assert reads(alike.plan([part(1, 300)], files, patient=False))[1:] == [(ROTATED, 0, None), (LOG, 0, 300)]


def test_a_copy_made_before_the_last_lines_adds_nothing() -> None:
    truncated = Bytes({3: Match.OTHER, 2: Match.SHORTER})
    files = [file(ROTATED, 2, 90, modified_ns=3), file(LOG, 3, 50)]
    assert truncated.plan([part(3, 100)], files) == Plan((PlannedRead(files[1], 0, 50),))


def test_a_file_that_is_not_found_is_waited_for_and_then_a_gap() -> None:
    gone, files = Bytes({3: Match.OTHER}), [file(OLD, 1), file(LOG, 3, 50, modified_ns=9)]
    known = [part(3, 100, modified_ns=5)]
    assert gone.plan(known, files) == Plan(waits=True)
    made = gone.plan(known, files, patient=False)
    assert (reads(made), "after byte 100 of inode 3" in made.gap) == ([(LOG, 0, 50)], True)
    assert gone.plan(known, [file(OLD, 1), file(LOG, 3, 0)]) == Plan(), "no lines, no gap"


def test_a_file_that_cannot_be_read_yet_is_waited_for() -> None:
    packing = Bytes({2: Match.UNKNOWN})
    files = [file(f"{ROTATED}.gz", 2, compressed=True), file(LOG, 3, 0)]
    assert packing.plan([part(9, 100)], files) == Plan(waits=True)


def test_a_deleted_file_that_is_open_is_read_before_what_is_newer() -> None:
    files = [file(OLD, 1, modified_ns=1), file(ROTATED, 3, modified_ns=8), file(LOG, 4, modified_ns=9)]
    nameless = file("", 2, modified_ns=5)
    assert reads(Bytes().plan([part(2, 100)], files, nameless)) == [("", 100, None), (ROTATED, 0, None), (LOG, 0, 300)]
    packed = [file(OLD, 1), file(f"{ROTATED}.gz", 3, modified_ns=5, compressed=True), file(LOG, 4, modified_ns=9)]
    own = Bytes({3: Match.SAME})
    assert reads(own.plan([part(2, 100)], packed, nameless)) == [("", 100, None), (LOG, 0, 300)], "its compressed form"


def test_late_lines_are_those_of_earlier_files_alone() -> None:
    files = [file(OLD, 1), file(ROTATED, 2), file(LOG, 3)]
    known = [part(1, 300), part(2, 200), part(3, 50), part(1, 250, late=True)]
    assert late(known, files, Bytes().match) == (
        PlannedRead(files[0], 250, late=True),
        PlannedRead(files[1], 200, late=True),
    )


def test_an_unknown_log_is_read_from_its_oldest_file_on() -> None:
    files = [file(f"{OLD}.gz", 1, compressed=True), file(ROTATED, 2), file(LOG, 3)]
    assert reads(Bytes().plan([], files)) == [(f"{OLD}.gz", 0, None), (ROTATED, 0, None), (LOG, 0, 300)]
