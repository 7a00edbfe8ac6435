"""Define tierfs recover: rebuild a store from its bucket."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.faces.cli import output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.place_options import archive_of, archive_options, place_options, require_place, server_options
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import VERBOSE, Session

if TYPE_CHECKING:
    from tierfs.app.recovery.from_objects import FromObjectsReport, RebuiltStore
    from tierfs.app.recovery.loss import SegmentLoss
    from tierfs.app.recovery.recover import RecoverReport

# Lines for segments recovered unchanged: they fit on a terminal.
_MOST_SEGMENTS = 20


@command("recover")
@place_options(
    "Bucket of the store.",
    "Another place of the store; URLs as for init.",
    "Cold directory of the store.",
)
@server_options()
@click.option(
    "--from-objects", is_flag=True, help="Read every object instead of the journal, if the journal is lost too."
)
@click.option("--yes", is_flag=True, help="With --from-objects: ignore an existing journal without confirmation.")
@click.option(
    "--thaw",
    "thaw_days",
    type=click.IntRange(1),
    metavar="DAYS",
    help="With --from-objects: request objects back that must be restored before they can be read.",
)
@archive_options("With --from-objects: the archive place of the store, a URL or a full path.")
@click.option("--left-place", is_flag=True, help="Recover from the source of a move, or from its incomplete target.")
def recover(
    session: Session, from_objects: bool, yes: bool, thaw_days: int | None, left_place: bool, **where: Any
) -> None:
    """Rebuild a lost store in the directory given by --store, which must be missing or empty.

    Everything in the bucket's journal is recovered; bytes that were only on the lost disk are not. The new
    store owns the bucket from then on: the lost one is read-only, if it still runs. Settings
    (store.toml) are not in the bucket. A recovery that was killed leaves a directory that is not a store: remove
    it and run the command again.

    The previous place of a `tierfs move` is refused, because newer data is only in the new place; the error shows its
    address. The target of an unfinished move is refused too, because objects are missing there.

    --from-objects rebuilds bytes, not operations: concatenated, truncated or deleted bytes may reappear; seals and
    policies are lost. It reads every object once. While objects must be restored first (DEEP_ARCHIVE), it fails and
    changes nothing: --thaw 7 requests them back for a week, and the same command continues once all can be read.
    If the store has an archive place (archive.place), specify it with --archive-place: it has a part of the objects.

    It lists 20 of the segments recovered without a known loss, or all with -v.
    """
    archive = archive_of(where)
    place, path = require_place("of the cold bytes", **where), session.require_store_path()
    every_segment = session.verbosity >= VERBOSE
    if archive is not None and not from_objects:
        raise InvalidRequest(
            "only --from-objects takes an archive place",
            remedy="omit it, and afterwards run: tierfs config archive.place=URL",
        )
    if thaw_days and not from_objects:
        raise InvalidRequest("only --from-objects reads objects", remedy="without it, omit --thaw")

    def confirm(journal: str) -> None:
        if not yes:
            raise InvalidRequest(
                f"--from-objects would ignore {journal}",
                remedy=f"first try without --from-objects; to ignore it: {session.command_with('--yes')}",
            )
        session.note(f"ignoring {journal}")

    with progress_line(session) as show:
        if from_objects:
            from tierfs.app.recovery.from_objects import recover_from_objects
            from tierfs.base.options import settings

            allowed = settings.of_environment(os.environ).cold.allowed_locations
            place = replace(place, settings=replace(place.settings, allowed_locations=allowed))
            rebuilt = recover_from_objects(
                path, place, show, confirm, archive=archive, takes_left=left_place, thaw_days=thaw_days or 0
            )
            session.warn_text(rebuilt.warnings)
            data = output.fields(rebuilt, "path store_id store_epoch cold_url objects bytes segments=rebuilt")
            data["left"] = [output.fields(left, "object=name why") for left in rebuilt.left]
            data |= output.fields(rebuilt, "unproven warnings archive_place")
            session.done(data, _objects_text(rebuilt, every_segment=every_segment))
        else:
            from tierfs.app.recovery.recover import recover_store

            report = recover_store(path, place, show, takes_left=left_place)
            session.warn_text(report.warnings)
            session.done(report, _recovered_text(report, every_segment=every_segment))


def _objects_text(report: FromObjectsReport, *, every_segment: bool) -> str:
    changed = [_rebuilt_line(segment) for segment in report.rebuilt if _is_changed(segment)]
    plain = (_rebuilt_line(segment) for segment in report.rebuilt if not _is_changed(segment))
    unchanged = len(report.rebuilt) - len(changed)
    lines = [*_some(plain, unchanged, "without a gap", every=every_segment), *changed]
    lines += [f"skipped {printable(left.name)}: {printable(left.why)}" for left in report.left]
    lines += [f"linked without proof of its bytes: {printable(name)}" for name in report.unproven]
    objects, segments = output.count(report.objects, "object"), output.count(len(report.rebuilt), "segment")
    return "\n".join(
        [
            *lines,
            f"rebuilt {segments} of {output.size(report.bytes)} in {objects}; {len(report.left)} skipped",
            _owner_line(report),
            *([f"its archive place is {printable(report.archive_place)}"] if report.archive_place else []),
            "bytes were rebuilt, not operations: concatenated, truncated or deleted bytes may reappear, segments",
            "are open, and policies are those of a new store; tierfs gc lists skipped objects as orphans, which",
            "gc --delete deletes, except packs from which another segment was linked: they stay complete",
        ]
    )


def _is_changed(segment: RebuiltStore) -> bool:
    return bool(segment.lost) or segment.segment != segment.wanted


def _some(lines: Iterable[str], number: int, what: str, *, every: bool) -> list[str]:
    """Return `number` lines about segments, the first of them unless `every` one is wanted."""
    more = 0 if every else number - _MOST_SEGMENTS
    if more <= 0:
        return list(lines)
    return [*islice(lines, _MOST_SEGMENTS), f"and {output.count(more, 'more segment')} {what}"]


def _owner_line(report: RecoverReport | FromObjectsReport) -> str:
    place = printable(str(report.path))
    return f"{place} is now the store of the bucket ({report.store_id}, epoch {report.store_epoch})"


def _rebuilt_line(rebuilt: RebuiltStore) -> str:
    name = printable(rebuilt.segment)
    if rebuilt.segment != rebuilt.wanted:
        name += f" (its name {printable(rebuilt.wanted)} was taken)"
    lost = "".join(f", bytes {gap.start} … {gap.end} are lost" for gap in rebuilt.lost)
    return f"{name}: {rebuilt.start_offset} … {rebuilt.length} in {output.count(rebuilt.objects, 'object')}{lost}"


def _recovered_text(report: RecoverReport, *, every_segment: bool) -> str:
    """Return what was recovered: each segment with a known loss, and some of those that were open."""
    lines = [
        f"recovered {output.count(report.segments, 'segment')} from the journal of {printable(report.cold_url)}",
        _owner_line(report),
    ]
    known = [_loss_line(loss) for loss in report.incomplete if loss.cut_bytes or loss.lost]
    perhaps = (_loss_line(loss) for loss in report.incomplete if not (loss.cut_bytes or loss.lost))
    possible = len(report.incomplete) - len(known)
    lines += _some(perhaps, possible, "that may have had later bytes", every=every_segment)
    return "\n".join([*lines, *known])


def _loss_line(loss: SegmentLoss) -> str:
    """Describe one segment that is not known to be whole."""
    if loss.sealed:
        parts = [f"ends at {loss.length}"]
    elif loss.length == loss.start_offset:
        parts = ["open, no bytes were cold: it is empty"]
    else:
        parts = [f"open, ends at {loss.length}: later bytes, if any, were not cold and are gone"]
    if loss.cut_bytes:
        parts.append(f"{output.size(loss.cut_bytes)} at its end are lost")
    parts += [f"bytes {gap.start} … {gap.end} are lost" for gap in loss.lost]
    return f"{printable(loss.segment)}: {', '.join(parts)}"
