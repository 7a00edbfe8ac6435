"""Tables of the report: what each promise of reading shows, over all links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.benchmarks.reading.counted_questions import RANDOM, SEQUENTIAL
from tests.benchmarks.reading.figures import CPU, DIGITS, RSS, SPREAD, Answer, Part
from tests.benchmarks.reading.links import BY_NAME
from tests.benchmarks.reading.peers import version_number
from tests.benchmarks.reading.plan import ON_EVERY_LINK
from tests.benchmarks.reading.random_questions import CHUNKY_FIRST, CHUNKY_OPENS, OPENS
from tests.benchmarks.reading.s3_questions import TIERFS
from tests.benchmarks.reading.targets import Verdict, verdicts

WANTED = "wanted"
_READ_OF = {
    1: "one reader",
    2: "four readers",
    3: "a local file",
    4: "the same, again",
    7: "64 readers",
    8: "the disk cache",
}
"""Rows of questions that have one part."""
_PART_OF = {
    OPENS: "64 opens",
    CHUNKY_FIRST: "100,000 chunks, first open of a mount",
    CHUNKY_OPENS: "100,000 chunks, 64 opens",
    SEQUENTIAL: "bytes fetched: a whole file",
    RANDOM: "KiB fetched: 256 reads of 4 KiB",
}
"""Rows of parts whose titles are long."""
_SHORT: Mapping[str, str] = {CPU: "CPU", RSS: "RSS", SPREAD: "evenness"}


@dataclass(frozen=True)
class Sheet:
    """A table: a row for each part of its questions on each link, a column for each subject."""

    title: str
    text: str
    numbers: tuple[int, ...]
    limit: str = "the limit"
    """Heading of the subject that the ratios are to."""
    costs: tuple[str, ...] = ()
    """Figures of a cell, as far as the part has them; by default the first one of the part, and its ratio."""
    drawn: tuple[int, ...] = ()
    """Questions that have a picture."""


SHEETS: Sequence[Sheet] = (
    Sheet(
        "Whole files from S3",
        "`dd bs=1M`, everything cold, MB/s, and the ratio to boto3's GETs: ranges of 8 MiB, 8 at a time on near links "
        "and 32 on far ones. The 64 readers read 1.4 GiB within a read budget of 256 MiB, and boto3's have 4 GETs of "
        "2 MiB in flight. Questions 1, 2 and 7.",
        (1, 2, 7),
        "boto3 GETs",
        drawn=(1, 2),
    ),
    Sheet(
        "What these reads cost",
        "CPU s/GiB and peak RSS in MiB of the mount (`boto3 GETs`: CPU of its process); with four readers also the "
        "speed of the slowest one over that of the fastest one (evenness).",
        (1, 2, 7),
        "boto3 GETs",
        costs=(CPU, RSS, SPREAD),
    ),
    Sheet(
        "First byte after an open, from S3",
        "Open, read 4 KiB at an offset not read before, close; p50 in ms, and the ratio to one presigned GET of 128 "
        "KiB over a connection that stays open. Every block is compared. Question 5.",
        (5,),
        "presigned GETs",
        drawn=(5,),
    ),
    Sheet(
        "Random reads from S3",
        "Aligned blocks at random offsets for 2 s, opened with `POSIX_FADV_RANDOM`, every block compared; p50 in ms of "
        "one thread, reads per second (IOPS) of 16, and the ratio to presigned GETs of the same blocks (128 KiB for "
        "4 KiB). Question 6.",
        (6,),
        "presigned GETs",
        drawn=(6,),
    ),
    Sheet(
        "Local files, the disk cache, and bytes fetched",
        "`dd bs=1M` of a sealed segment, MB/s. The limit is a null filesystem written with pyfuse3; that of the disk "
        "cache is the local tier, and no byte comes from S3. Below, a relay counts the bytes of all answers with their "
        "headers, per byte read, and KiB per read. Questions 3, 4, 8 and 9.",
        (3, 4, 8, 9),
    ),
)


def rows(sheet: Sheet, answers: Sequence[Answer]) -> list[tuple[str, Answer, Part]]:
    """Parts with their titles: question after question, part after part, and each of them link after link."""
    keyed = {
        (answer.number, place, answer.link): (answer, part)
        for answer in answers
        if answer.number in sheet.numbers
        for place, part in enumerate(answer.parts)
    }
    return [(_title(*keyed[key]), *keyed[key]) for key in sorted(keyed, key=lambda key: key[:2])]


def _title(answer: Answer, part: Part) -> str:
    what = _PART_OF.get(part.title, part.title) if part.title else _READ_OF.get(answer.number, answer.title)
    return f"{what}; {BY_NAME[answer.link].title}" if answer.number in ON_EVERY_LINK else what


def table(sheet: Sheet, answers: Sequence[Answer]) -> list[str]:
    """Lines of the table; none without an answer."""
    of_sheet = rows(sheet, answers)
    if not of_sheet:
        return []
    subjects = [(subject, part) for _, _, part in of_sheet for subject in (*part.found, *part.failed)]
    columns = list(dict.fromkeys(subject for subject, part in subjects if subject != part.limit))
    heads = [sheet.limit, *(_head(column, of_sheet) for column in columns), WANTED]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for title, answer, part in of_sheet:
        cells = [_cell(sheet, part, part.limit), *(_cell(sheet, part, subject) for subject in columns)]
        lines.append(f"| {title} | {' | '.join([*cells, _wanted(sheet, answer, part)])} |")
    return lines


def _head(subject: str, of_sheet: Sequence[tuple[str, Answer, Part]]) -> str:
    """Return the subject, and its versions in this table if it is another program."""
    if subject == TIERFS:
        return subject
    of_subject = [answer.programs.get(subject, "") for _, answer, part in of_sheet if subject in part.found]
    versions = dict.fromkeys(number for text in of_subject if (number := version_number(text)))
    return f"{subject} {', '.join(versions)}".strip()


def _cell(sheet: Sheet, part: Part, subject: str) -> str:
    """Medians, and the ratio of the first of the part's metrics to the limit."""
    medians = {metric: value for metric in _shown(sheet, part) if (value := part.median(subject, metric)) is not None}
    if not medians:
        return "failed" if subject in part.failed else ""
    text = ", ".join(f"{value:.{DIGITS[metric]}f}" for metric, value in medians.items())
    ratio = part.ratio(subject)
    return f"{text} ({ratio:.2f})" if not sheet.costs and subject != part.limit and ratio is not None else text


def _shown(sheet: Sheet, part: Part) -> Sequence[str]:
    """Return the metrics of a cell."""
    return [metric for metric in sheet.costs if metric in part.metrics] if sheet.costs else part.metrics[:1]


def _wanted(sheet: Sheet, answer: Answer, part: Part) -> str:
    """All targets of a row; those that were missed are bold, with what was reached."""
    metrics = _shown(sheet, part)
    return "; ".join(
        _target(verdict, several=len(sheet.costs) > 1)
        for verdict in verdicts(answer)
        if verdict.target.part == part.title and verdict.target.metric in metrics
    )


def _target(verdict: Verdict, *, several: bool) -> str:
    target = verdict.target
    name = "" if target.subject == TIERFS else target.subject.removeprefix(f"{TIERFS}, ") + " "
    metric = f"{_SHORT.get(target.metric, target.metric)} " if several else ""
    text = f"{name}{metric}{'≥' if target.at_least else '≤'} {target.bound:g}"
    text += f" of {target.against}" if target.against and target.against != "the limit" else ""
    if verdict.found is None:
        return f"{text} (not measured)"
    if verdict.held:
        return text
    digits = 2 if target.against else DIGITS[target.metric]
    if round(verdict.found, digits) == target.bound:
        digits += 1
    return f"**{text}: {verdict.found:.{digits}f}**"
