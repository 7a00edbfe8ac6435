"""Standby: a replica that follows its bucket, and takes it over once its owner shows no sign of life.

A replica for which no time is set takes over by command alone: it asks for no sign of life, and sends no more requests.

Each look applies the new slots of the journal and reads the owner's sign of life (journal/life.py). A takeover needs
all of these: the time that the operator chose has passed without any; the owner had answered this standby's mark, or
was a standby itself, so that silence means something; the mark is still there; no person has paused takeovers; the
check program allows it; and after all that a last look shows still the same.

Of two standbys the journal lets one win. The other one is fenced off in the attempt, and follows the new owner.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import islice
from typing import TYPE_CHECKING

from tierfs.app.recovery.loss import SegmentLoss
from tierfs.app.recovery.silence import Evidence, Silence
from tierfs.app.replica import follower_of
from tierfs.app.store import Store
from tierfs.base.bytes.progress import OnProgress, unseen
from tierfs.base.system import processes
from tierfs.base.words import units
from tierfs.base.words.errors import Fenced, TierfsError, Unavailable, WrongColdTier
from tierfs.base.words.names import printable
from tierfs.engine.journal import epochs, life
from tierfs.engine.journal.epochs import EpochNote
from tierfs.engine.journal.life import SignOfLife, StandbyMark
from tierfs.engine.metadata.store import new_id
from tierfs.upkeep.holder import standby_note
from tierfs.upkeep.holder.standby_note import MOST_LISTED, Phase, StandbyNote, Taken

if TYPE_CHECKING:
    from tierfs.app.recovery.promote import Promoted

log = logging.getLogger(__name__)

# The longest pause between two looks that counts, in periods of looks. A guess: looks of a slow server take a while.
_PERIODS_COUNTED = 2

# Between two runs of a check that refused, and of a look for the own mark while the owner does not answer (guesses).
_CHECK_AGAIN_S = 10.0
_MARK_AGAIN_S = 60.0

_BY_COMMAND = "a person ran tierfs standby --now"

# Of what a check printed, for a person.
_MOST_CHARACTERS = 200


class Standby:
    """One standby. Used by one thread of the store's holder."""

    def __init__(self, store: Store, on_owned: Callable[[], None]) -> None:
        """`on_owned` is called once the store owns its bucket."""
        self._store = store
        self._clock = store.clock
        self._settings = store.settings.standby
        self._on_owned = on_owned
        self._follower = follower_of(store)
        location = store.cold_location
        assert location is not None
        self._place = store.place_of(location)
        self._storage = store.storage_of(location.id)
        known = standby_note.read(store.paths)
        seen = Evidence(known.slot, known.epoch, known.beat) if known.slot else None
        most_s = _PERIODS_COUNTED * store.settings.background.replica_refresh_s
        self._silence = Silence(most_s, seen, known.silent_s if seen else 0.0)
        self._mark: StandbyMark | None = None
        self._marked_s: float | None = None
        """When the own mark was last seen, or put."""
        self._before = known.before
        """The beat that was there when the mark was put: it is no answer to that."""
        self._began: tuple[int, EpochNote] = (0, EpochNote())
        self._sign: SignOfLife | None = None
        self._check_due_s = 0.0
        self._failed = ""
        """The kind of error of the last takeover, while none has succeeded: each attempt of the next hours has it."""

    def look(self) -> None:
        """Follow the bucket, and take it over if it is time to. Raises what following raises."""
        evidence = self._look()
        if evidence is None:
            return
        if self._wanted():
            self._learn_owner()
            self._take_over(_BY_COMMAND)
        elif self._is_standby:
            self._decide(evidence)

    def take_over_now(self, report: OnProgress = unseen) -> None:
        """Take the bucket over, as a person wants it, without a holder. Raises what looking and `promote` raise."""
        self._follower.refresh(report)
        self._learn_owner()
        take_over(self._store, self._owner_host, _BY_COMMAND, self._sign, report)

    def _look(self) -> Evidence | None:
        """Return what the bucket shows now; None while it cannot be reached, which is noted."""
        began_s = self._clock.monotonic_s()
        try:
            evidence = self._observe()
        except TierfsError as exc:
            self._silence.miss()
            if not (self._is_standby and isinstance(exc, Unavailable)):
                raise
            # Not as a failure, between whose attempts the pauses grow: the owner may die in one of them.
            away = "" if isinstance(exc, WrongColdTier) else "the bucket cannot be reached from here: "
            self._note(Phase.BLOCKED, f"{away}{_with_remedy(exc)}")
            return None
        if self._silence.look(evidence, began_s, self._clock.monotonic_s()) and self._is_standby:
            local_only_bytes = -1 if self._sign is None else self._sign.local_only_bytes
            boot_id, seen_s = self._clock.boot_id(), self._clock.boot_s()
            known = {"boot_id": boot_id, "seen_s": seen_s, "local_only_bytes": local_only_bytes}
            standby_note.report(self._store.paths, other_host=self._owner_host, **known)
        return evidence

    def _observe(self) -> Evidence:
        slot = self._follower.refresh().slot
        if not self._is_standby:
            self._remove_mark()
            return Evidence(slot, 0)
        self._keep_mark()
        epoch = self._learn_owner()
        return Evidence(slot, epoch, "" if self._sign is None else self._sign.beat)

    def _learn_owner(self) -> int:
        """Read what the bucket says of its owner, and of its life; return its epoch."""
        with self._store.metadata.read() as txn:
            store_id, epoch = txn.store.store_id, txn.store.store_epoch
        if self._began[0] != epoch:
            self._began = epoch, epochs.note_of(self._storage, epoch)
        sign = life.seen(self._storage)
        if sign is not None and (sign.store_id, sign.epoch) == (store_id, epoch):
            self._sign = sign
        elif self._sign is not None and self._sign.epoch != epoch:
            self._sign = None
        # Else a previous owner, which was stopped and continued, put its sign over that of the present one.
        return epoch

    def _keep_mark(self) -> None:
        """Put this standby's mark if it is not there. Its owner answers it within background.owner_check_s."""
        now_s = self._clock.monotonic_s()
        if self._marked_s is not None and (self._answers or now_s - self._marked_s < _MARK_AGAIN_S):
            return
        self._require_mark()

    def _require_mark(self) -> bool:
        """Return whether the mark was there; put it if not: then an answer to it is awaited first."""
        if self._mark is None:
            known = standby_note.read(self._store.paths).id
            standby_id = known or new_id()
            if not known:
                standby_note.write(self._store.paths, lambda note: replace(note, id=standby_id))
            self._mark = StandbyMark(standby_id, self._settings.takeover_after_s)
        was_there = life.has_mark(self._storage, self._mark)
        if not was_there:
            sign = life.seen(self._storage)
            self._before = before = "" if sign is None else sign.beat
            standby_note.write_synced(self._store.paths, lambda note: replace(note, before=before))
            life.put_mark(self._storage, self._mark)
            self._silence.restart()
        self._marked_s = self._clock.monotonic_s()
        return was_there

    def _remove_mark(self) -> None:
        """Remove the mark of a standby that is none any more."""
        standby_id = standby_note.read(self._store.paths).id
        if standby_id:
            life.remove_marks(self._storage, standby_id)
            standby_note.report(self._store.paths, id="", phase=Phase.NONE, why="", after_s=0, boot_id="")

    @property
    def _is_standby(self) -> bool:
        return self._settings.takeover_after_s > 0

    @property
    def _answers(self) -> bool:
        """Whether the owner is known to show signs of life to this standby, so that silence means something."""
        if self._began[1].was_standby:
            return True
        sign, mark = self._sign, self._mark
        return sign is not None and mark is not None and mark.id in sign.standbys and sign.beat != self._before

    @property
    def _was_interrupted(self) -> bool:
        """Whether the owner is this standby itself, in a takeover that was killed or failed after it won the bucket."""
        attempt = standby_note.read(self._store.paths).attempt
        return bool(attempt) and self._began[1].attempt == attempt

    @property
    def _owner_host(self) -> str:
        return self._began[1].host if self._sign is None else self._sign.host

    def _wanted(self) -> bool:
        return bool(standby_note.read(self._store.paths).wanted)

    def _decide(self, evidence: Evidence) -> None:
        """Take over if the owner was silent long enough, and nothing speaks against it."""
        after_s, silent_s, was_interrupted = (
            self._settings.takeover_after_s,
            self._silence.silent_s,
            self._was_interrupted,
        )
        if not self._answers:
            self._note(
                Phase.BLOCKED,
                "the owner has not answered this standby yet: its tierfs is too old for that, or no mount or daemon "
                "runs there; a takeover needs a person: tierfs standby --now",
            )
            return
        if silent_s < after_s and not was_interrupted:
            self._failed = ""
            self._note(Phase.SILENT if silent_s >= after_s / 2 else Phase.FOLLOWS, "")
            return
        why_not = self._why_not(evidence)
        if why_not:
            self._note(Phase.BLOCKED, why_not)
            return
        if was_interrupted:
            self._take_over("its own takeover did not end")
        elif self._silence.silent_s >= after_s:
            told = units.format_duration(round(self._silence.silent_s))
            self._take_over(f"its owner showed no sign of life for {told}")

    def _why_not(self, evidence: Evidence) -> str:
        """Return what speaks against a takeover that is due; empty if nothing does, as of a last look."""
        paused = standby_note.read(self._store.paths).paused
        if paused:
            return f"a person has paused takeovers: {paused}"
        refused = self._refused()
        if refused:
            return refused
        if not self._require_mark():
            return "the mark of this standby was gone, so its owner may have stopped answering it; put again"
        if self._look() != evidence:  # the check may have taken a while
            return "the owner showed a sign of life"
        return ""

    def _refused(self) -> str:
        """Run the check; return why it does not allow a takeover, or empty."""
        command = self._settings.check
        if not command:
            return ""
        now_s = self._clock.monotonic_s()
        if now_s < self._check_due_s:
            return standby_note.read(self._store.paths).why or "the check refused a moment ago"
        self._note(Phase.SILENT, "the check is running")
        reason = _reason_against(command, self._settings.check_timeout_s, self._variables())
        self._check_due_s = self._clock.monotonic_s() + _CHECK_AGAIN_S if reason else 0.0
        return reason

    def _variables(self) -> dict[str, str]:
        return {
            "TIERFS_STORE": str(self._store.path),
            "TIERFS_STANDBY_OWNER": self._owner_host,
            "TIERFS_STANDBY_SILENT_S": str(round(self._silence.silent_s)),
        }

    def _take_over(self, why: str, report: OnProgress = unseen) -> None:
        """Become the owner. One that was faster is followed; a takeover that a person wanted is tried once."""
        paths, from_host, sign = self._store.paths, self._owner_host, self._sign
        was_wanted = self._wanted()
        self._note(Phase.TAKES_OVER, why, is_logged=False)
        if not self._failed:
            log.warning("this standby takes the bucket over from %s: %s", from_host or "its owner", why)
        try:
            taken = take_over(self._store, from_host, why, sign, report)
        except TierfsError as exc:
            self._note(Phase.BLOCKED, f"the takeover failed: {_with_remedy(exc)}", is_logged=False)
            if was_wanted:
                standby_note.report(paths, wanted="", refused=f"{exc}")
            if isinstance(exc, Fenced):  # another standby or a recovery was faster: its journal is followed
                self._silence.restart()
                standby_note.report(paths, attempt="")
                log.info("%s", exc)
                return
            if not was_wanted and self._failed != (failed := type(exc).__name__):
                self._failed = failed
                log.warning("the takeover failed, and is retried while the owner is silent: %s", exc)
            raise
        log.warning("this store owns the bucket since epoch %d: %s", taken.epoch, told(taken))
        self._on_owned()

    def _note(self, phase: Phase, why: str, *, is_logged: bool = True) -> None:
        before = standby_note.read(self._store.paths)
        after_s, silent_s = self._settings.takeover_after_s, int(self._silence.silent_s)
        seen = self._silence.seen or Evidence(0, 0)
        if is_logged and (before.phase, before.why) != (phase, why):
            log.info("standby: %s%s", phase, f": {why}" if why else "")
        counted = {"silent_s": silent_s, "slot": seen.slot, "epoch": seen.epoch, "beat": seen.beat}
        standby_note.report(self._store.paths, phase=phase, why=why, after_s=after_s, **counted)


def take_over(
    store: Store, from_host: str, why: str, sign: SignOfLife | None = None, report: OnProgress = unseen
) -> Taken:
    """Make a replica the owner of its bucket, and note what the previous owner still had. The caller holds the store.

    Raises as `promote`.
    """
    from tierfs.app.recovery.promote import promote

    location = store.cold_location
    assert location is not None
    attempt = standby_note.read(store.paths).attempt or new_id()
    standby_note.report(store.paths, attempt=attempt)
    done = promote(store.metadata, store.place_of(location), attempt, report)
    for warning in done.warnings:
        log.warning("%s", warning)
    taken = _taken(done, from_host, store.clock.now_ms(), why, sign)
    note = standby_note.read(store.paths)
    ended = asdict(StandbyNote(id=note.id, after_s=note.after_s)) | {"phase": Phase.NONE, "taken": taken}
    standby_note.report(store.paths, **ended)
    if note.id:
        try:
            life.remove_marks(store.storage_of(location.id), note.id)
        except TierfsError as exc:  # the holder does it with its first sign of life to another standby
            log.info("the mark of this standby is still in the bucket: %s", exc)
    return taken


def _taken(done: Promoted, from_host: str, at_ms: int, why: str, sign: SignOfLife | None) -> Taken:
    listed = tuple(_line(each) for each in islice(done.incomplete, MOST_LISTED))
    return Taken(
        from_host=from_host,
        epoch=done.store_epoch,
        at_ms=at_ms,
        why=why,
        segments=done.segments,
        incomplete=listed,
        more=len(done.incomplete) - len(listed),
        local_only_bytes=-1 if sign is None else sign.local_only_bytes,
    )


def _with_remedy(error: TierfsError) -> str:
    return f"{error}; {error.remedy}" if error.remedy else f"{error}"


def _line(loss: SegmentLoss) -> str:
    """Return in one line what the previous owner may have of a segment."""
    named = f"{printable(loss.segment)}: "
    lost = sum(each.length_bytes for each in loss.lost)
    parts = [f"{units.size(lost)} missing inside"] if lost else []
    if loss.cut_bytes:
        parts.append(f"at least {units.size(loss.cut_bytes)} after offset {loss.length}")
    elif not loss.sealed:
        parts.append(f"open, ends at {loss.length}: later bytes, if any")
    return named + "; ".join(parts)


def told(taken: Taken) -> str:
    """Return in one line what the previous owner still had."""
    count = len(taken.incomplete) + taken.more
    if not count:
        return "the journal shows no byte that only the previous owner's disk has"
    size = ""
    if taken.local_only_bytes > 0:
        size = f", {units.size(taken.local_only_bytes)} as of its last sign of life"
    some = units.count(count, "segment")
    return f"{some} of {taken.segments} may have bytes that only the previous owner's disk has{size}"


def _reason_against(command: str, longest_s: float, variables: dict[str, str]) -> str:
    """Run a check; return why it does not allow a takeover, or empty. A check that cannot run allows nothing."""
    try:
        ran = processes.run(shlex.split(command), timeout_s=longest_s, variables=variables)
    except processes.TimeoutExpired:
        return f"the check did not end within {longest_s:g} s"
    except (OSError, ValueError) as exc:
        return f"the check cannot run: {exc}"
    if ran.returncode == 0:
        return ""
    said = printable((ran.stdout + ran.stderr).strip().partition("\n")[0][:_MOST_CHARACTERS])
    return f"the check refuses (exit code {ran.returncode}){f': {said}' if said else ''}"
