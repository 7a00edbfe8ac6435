"""What pages say to programmers exists: names of Python, extras and file names of the wheel, options of Spark."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterable

import pytest

from tests.structure.prose import MANUAL, ROOT, of_page, of_pages, of_program, spans, tables
from tierfs import __version__

SPARK = ROOT / "docs/spark-options.md"
NO_MODULES = {
    "tierfs.storage": "a group of entry points",
    "tierfs.transform": "another",
    "tierfs.offsets": "of snapshots",
}
OBJECTS = ROOT / "docs/format.md"
"""Has keys of objects' user metadata, which look like modules."""


def exists(name: str) -> bool:
    """Whether a dotted name leads to a module, or to an attribute of one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            thing: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(thing, part):
                return False
            thing = getattr(thing, part)
        return True
    return False


def test_python_names_exist() -> None:
    pytest.importorskip("pyspark")
    names = {
        match[1]: code.where
        for page in MANUAL
        if page != OBJECTS
        for code in of_page(page)
        for match in re.finditer(r"(?<![\w./-])(tierfs(?:\.[A-Za-z_]+)+)\b(?!/)", code.text)
    }
    assert len(names) > 10
    assert [f"{where}: {name}" for name, where in names.items() if name not in NO_MODULES and not exists(name)] == []


def test_extras_and_wheels_are_those_that_are_made() -> None:
    setup = (ROOT / "setup.py").read_text()
    texts = [code for code in (*of_pages(), *of_program()) if "pip install" in code.text or ".whl" in code.text]
    extras = {name for code in texts for name in re.findall(r"(?:checkout|\.whl)\[([a-z]+)\]", code.text)}
    assert len(extras) > 2
    assert [name for name in sorted(extras) if f'"{name}": ' not in setup] == []
    versions = {version for code in texts for version in re.findall(r"tierfs-([0-9][\w.]*)-py3", code.text)}
    assert versions == {__version__}


def options_in(section: str, end: str) -> set[str]:
    """The options in the table of a section."""
    text = SPARK.read_text().partition(f"\n{section}\n")[2].partition(f"\n{end}\n")[0]
    rows = [row for row in text.splitlines() if row.startswith("| `")]
    return {name for row in rows for name in spans(row.split("|")[1])}


def in_spark(names: Iterable[str]) -> list[str]:
    """The names that the page has nowhere between backticks or quotes."""
    text = SPARK.read_text()
    return [name for name in names if not re.search(rf"[`\"]{name}[`\"]|`{name}\b", text)]


def test_options_of_spark_are_documented_and_exist() -> None:
    pytest.importorskip("pyspark")
    from tierfs.pipeline.spark import options, write_options

    read, written = set(options._READ_OPTIONS), {*write_options._WRITE_OPTIONS, *write_options._STREAM_OPTIONS}
    assert options_in("## Options of reads", "## Options of streams") - read == set()
    assert options_in("## Options of streams", "## Options of writes") - read - set(options.STREAM_OPTIONS) == set()
    assert options_in("## Options of writes", "## Names that Kafka and Spark use") - written == set()
    of_spark = {"paths", "queryName"}  # which Spark itself sets
    assert in_spark(sorted((read | written | set(options.STREAM_OPTIONS)) - of_spark)) == []
    assert any(title.startswith("| option ") for title, _ in tables(SPARK))


def test_the_requests_of_http_are_those_that_are_served() -> None:
    served = {
        (method.upper(), re.sub(r"\{\w+\}", "NAME", path))
        for path, methods in json.loads((ROOT / "docs/openapi.json").read_text())["paths"].items()
        for method in methods
    }
    listed = set()
    for title, rows in tables(ROOT / "docs/admin.md"):
        for row in rows if title.startswith("| method and path |") else []:
            method = ""
            for span in spans(row[0]):
                first, _, path = span.rpartition(" ")
                method = first or method
                listed.add((method, re.sub(r"/[A-Z]+$", "/NAME", path)))
    assert listed == served
