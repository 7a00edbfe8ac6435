"""What becomes of measured figures: kept, merged, judged and written down. Nothing is measured here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.reading import report
from tests.benchmarks.reading.figures import CPU, RATE, Answer, Part, Results, load
from tests.benchmarks.reading.run import Plan, ask, parse_questions
from tests.benchmarks.reading.subjects import Question, Table
from tests.benchmarks.reading.targets import verdicts

RAW, OURS, PEER = "boto3 GETs", "tierfs", "s3fs"


def answer(number: int, **rates: float) -> Answer:
    part = Part("", RAW)
    for subject, rate in {RAW: 1000.0, **{name.replace("_", " "): value for name, value in rates.items()}}.items():
        part.add(subject, {RATE: rate, CPU: 0.5})
    return Answer(number, f"question {number}", "method", 1 << 30, 1, (part,))


def held(found: Answer) -> dict[tuple[str, str, str], bool | None]:
    return {(one.target.subject, one.target.metric, one.target.against): one.held for one in verdicts(found)}


def test_an_answer_replaces_only_the_one_to_its_question(tmp_path: Path) -> None:
    results = Results({"cores": "2"}, {"tierfs": "1"})
    for one in (answer(2, tierfs=100.0), answer(1, tierfs=100.0), answer(2, tierfs=900.0)):
        results.put(one)
    results.save(tmp_path / "r.json")
    loaded = load(tmp_path / "r.json")
    assert [one.number for one in loaded.answers] == [1, 2]
    assert [one.parts[0].median(OURS, RATE) for one in loaded.answers] == [100.0, 900.0]


def test_targets_are_judged_by_ratios() -> None:
    found = held(answer(1, tierfs=821.0, s3fs=600.0))
    assert found[OURS, RATE, "to the first row"] is True
    assert found[OURS, RATE, "to the best other mount"] is True
    assert found[OURS, CPU, ""] is True
    found = held(answer(1, tierfs=819.0, s3fs=700.0))
    assert found[OURS, RATE, "to the first row"] is False
    assert found[OURS, RATE, "to the best other mount"] is False


def test_what_was_not_measured_is_not_judged() -> None:
    found = held(answer(1, tierfs=900.0))
    assert found[OURS, RATE, "to the best other mount"] is None
    assert found["tierfs, direct_io", RATE, "to the first row"] is None


def test_a_subject_that_fails_is_remarked_and_the_others_are_measured(tmp_path: Path) -> None:
    def fails(repetition: int) -> dict[str, float]:
        raise OSError("gone")

    table = Table(RAW, {PEER: fails, RAW: lambda repetition: {RATE: 100.0 + repetition}})
    found = ask(Question(1, "title", "method", {"": table}), Plan(frozenset({1}), 3, 1 << 30, tmp_path))
    assert found.parts[0].found == {RAW: {RATE: [100.0, 101.0, 102.0]}}
    assert found.remarks == ["s3fs failed (title): OSError: gone"]


def test_the_report_replaces_what_is_between_the_markers(tmp_path: Path) -> None:
    document = tmp_path / report.DOCUMENT
    document.write_text(f"above\n{report.BEGIN}\nold\n{report.END}\nbelow\n")
    results = Results({}, {})
    results.put(answer(1, tierfs=500.0))
    report.write(results, tmp_path)
    report.write(results, tmp_path)
    text = document.read_text()
    assert text.startswith("above\n")
    assert text.endswith("below\n")
    assert text.count("### 1. question 1") == 1
    assert "old" not in text
    assert "| tierfs | 500 | 0.50 | 0.50 |" in text


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
