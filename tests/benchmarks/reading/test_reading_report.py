"""What becomes of measured figures: kept, merged, judged and written down. Nothing is measured here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks.reading import report
from tests.benchmarks.reading.figures import (
    CPU,
    FAR,
    FARTHER,
    HTTPS,
    LINK_NAMES,
    LOOPBACK,
    RATE,
    Answer,
    Part,
    Results,
    load,
)
from tests.benchmarks.reading.plan import (
    FIRST_LOCAL,
    MANY,
    ON_EVERY_LINK,
    QUESTIONS,
    Plan,
    parse_links,
    parse_questions,
)
from tests.benchmarks.reading.run import ask
from tests.benchmarks.reading.subjects import Question, Table
from tests.benchmarks.reading.targets import TARGETS, verdicts

RAW, OURS, PEER = "boto3 GETs", "tierfs", "s3fs"


def answer(number: int, link: str = LOOPBACK, **rates: float) -> Answer:
    part = Part("", RAW)
    for subject, rate in {RAW: 1000.0, **{name.replace("_", " "): value for name, value in rates.items()}}.items():
        part.add(subject, {RATE: rate, CPU: 0.5})
    return Answer(number, f"question {number}", "method", 1 << 30, 1, (part,), link=link)


def held(found: Answer) -> dict[tuple[str, str, str], bool | None]:
    return {(one.target.subject, one.target.metric, one.target.against): one.held for one in verdicts(found)}


def test_an_answer_replaces_only_the_one_to_its_question(tmp_path: Path) -> None:
    results = Results({"cores": "2"})
    for one in (answer(2, tierfs=100.0), answer(1, tierfs=100.0), answer(2, tierfs=900.0)):
        results.put(one)
    results.save(tmp_path / "r.json")
    loaded = load(tmp_path / "r.json")
    assert [one.number for one in loaded.answers] == [1, 2]
    assert [one.parts[0].median(OURS, RATE) for one in loaded.answers] == [100.0, 900.0]


def test_an_answer_leaves_those_of_other_links() -> None:
    results = Results({})
    for one in (answer(2), answer(1, FAR), answer(1, HTTPS), answer(1), answer(1, FAR, tierfs=7.0)):
        results.put(one)
    assert [(one.link, one.number) for one in results.answers] == [(LOOPBACK, 1), (LOOPBACK, 2), (HTTPS, 1), (FAR, 1)]
    assert results.answers[-1].parts[0].median(OURS, RATE) == 7.0


def test_links_have_targets_of_their_own() -> None:
    """0.87 of raw and 1.15 of the best peer: enough on the farthest link, on a far one only beside peers."""
    near, far, farther = (held(answer(1, link, tierfs=870.0, s3fs=756.0)) for link in (HTTPS, FAR, FARTHER))
    assert (OURS, RATE, "the limit") not in near
    assert far[OURS, RATE, "the limit"] is False
    assert far[OURS, RATE, "the best other mount"] is True
    assert farther[OURS, RATE, "the limit"] is True


def test_every_target_is_of_a_question_that_its_link_is_asked() -> None:
    plan = Plan(frozenset(QUESTIONS), 1, 1 << 30, Path())
    assert tuple(TARGETS) == LINK_NAMES
    assert all(set(targets) <= plan.on(link) for link, targets in TARGETS.items())


def test_targets_are_judged_by_ratios() -> None:
    found = held(answer(1, tierfs=821.0, s3fs=600.0))
    assert found[OURS, RATE, "the limit"] is True
    assert found[OURS, RATE, "the best other mount"] is True
    assert found[OURS, CPU, ""] is True
    found = held(answer(1, tierfs=819.0, s3fs=700.0))
    assert found[OURS, RATE, "the limit"] is False
    assert found[OURS, RATE, "the best other mount"] is False


def test_what_was_not_measured_is_not_judged() -> None:
    found = held(answer(1, tierfs=900.0))
    assert found[OURS, RATE, "the best other mount"] is None
    assert found["tierfs, direct_io", RATE, "the limit"] is None


def test_a_subject_that_fails_is_remarked_and_the_others_are_measured(tmp_path: Path) -> None:
    def fails(repetition: int) -> dict[str, float]:
        raise OSError("gone")

    table = Table(RAW, {PEER: fails, RAW: lambda repetition: {RATE: 100.0 + repetition}})
    found = ask(Question(1, "title", "method", {"": table}), Plan(frozenset({1}), 3, 1 << 30, tmp_path))
    assert found.parts[0].found == {RAW: {RATE: [100.0, 101.0, 102.0]}}
    assert found.parts[0].failed == [PEER]
    assert found.remarks == ["s3fs failed (title): OSError: gone"]
    shown = report.markdown(Results({}, answers=[found]), tmp_path)
    assert "* loopback, question 1: s3fs failed (title): OSError: gone" in shown
    assert "| one reader; loopback | 101 | failed |" in shown


def test_the_report_replaces_what_is_between_the_markers(tmp_path: Path) -> None:
    document = tmp_path / report.DOCUMENT
    document.write_text(f"above\n{report.BEGIN}\nold\n{report.END}\nbelow\n")
    results = Results({})
    results.put(answer(1, tierfs=500.0))
    report.write(results, tmp_path)
    report.write(results, tmp_path)
    text = document.read_text()
    assert text.startswith("above\n")
    assert text.endswith("below\n")
    assert text.count("### Whole files from S3") == 1
    assert "\nold\n" not in text
    assert "| one reader; loopback | 1000 | 500 (0.50) | **≥ 0.82: 0.50**;" in text


def test_a_table_has_a_row_for_each_link(tmp_path: Path) -> None:
    results = Results({})
    for link in (FAR, LOOPBACK):
        results.put(answer(1, link, tierfs=500.0, s3fs=250.0))
    lines = report.markdown(results, tmp_path).splitlines()
    costs = "What these reads cost"
    assert [line for line in lines if line.startswith("#")] == ["### Whole files from S3", f"### {costs}"]
    whole = [line for line in lines[: lines.index(f"### {costs}")] if line.startswith("|")]
    assert whole[0] == "| | boto3 GETs | tierfs | s3fs | wanted |"
    far = "one reader; 15 ms, 90 MB/s | 1000 | 500 (0.50) | 250 (0.25) | **≥ 0.9: 0.50**; ≥ 1.1 of the best other mount"
    assert whole[-1] == f"| {far} |"
    assert whole[-2].startswith("| one reader; loopback | 1000 | 500 (0.50) | 250 (0.25) |")
    assert any(line.startswith("| one reader; loopback | 0.50 | 0.50 | 0.50 | CPU ≤ 0.9; ") for line in lines)


def test_figures_name_the_version_that_they_were_measured_with(tmp_path: Path) -> None:
    results = Results({})
    for link, version in ((LOOPBACK, "1.4.2+pypi"), (FAR, "1.2.5")):
        programs = {PEER: f"s3fs version {version}"}
        results.put(replace(answer(1, link, tierfs=5.0, s3fs=9.0), programs=programs, measured="2026-11-23"))
    shown = report.markdown(results, tmp_path)
    assert "* 23 November 2026: s3fs version 1.4.2+pypi. loopback 1: files of 1 GiB, medians of 1.\n" in shown
    assert "* 23 November 2026: s3fs version 1.2.5. far 1: files of 1 GiB, medians of 1.\n" in shown
    assert "| | boto3 GETs | tierfs | s3fs 1.4.2, 1.2.5 | wanted |" in shown


def test_a_target_that_was_missed_by_less_than_is_shown_says_by_how_much(tmp_path: Path) -> None:
    shown = report.markdown(Results({}, answers=[answer(1, FAR, tierfs=898.0)]), tmp_path)
    assert "**≥ 0.9: 0.898**" in shown


def test_a_document_without_markers_is_refused(tmp_path: Path) -> None:
    (tmp_path / report.DOCUMENT).write_text(report.BEGIN)
    with pytest.raises(report.ReportPlaceMissing, match=report.DOCUMENT):
        report.require_place(tmp_path)


def test_the_document_of_the_project_has_a_place() -> None:
    report.require_place(Path(__file__).parents[3] / "docs")


def test_an_unknown_question_is_named() -> None:
    assert parse_questions("1,6") == {1, 6}
    with pytest.raises(ValueError, match="no question '10'"):
        parse_questions("1,10")


def test_an_unknown_link_is_named() -> None:
    assert parse_links("far,loopback") == (LOOPBACK, FAR)
    with pytest.raises(ValueError, match="no link 'near'; there are loopback, https, far, farther"):
        parse_links("far,near")


def test_only_what_a_link_changes_is_asked_on_it() -> None:
    plan = Plan(frozenset(QUESTIONS), 1, 1 << 30, Path(), links=(FAR,))
    assert plan.on(LOOPBACK) == set(QUESTIONS)
    assert plan.on(FAR) == ON_EVERY_LINK
    assert plan.needs_s3
    assert not plan.asks(MANY)
    assert not Plan(frozenset({FIRST_LOCAL}), 1, 1 << 30, Path()).needs_s3
