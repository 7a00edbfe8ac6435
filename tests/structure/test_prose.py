"""Prose names only what exists, and names all of it: commands, settings, policies, metrics, labels, pages, files.

`python -m tests.structure.test_prose` writes the table of all settings into docs/settings.md, that of metrics into
docs/monitoring.md, and the template of store.toml.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.structure.prose import (
    CHANGES,
    MANUAL,
    PAGES,
    ROOT,
    Code,
    command_of,
    lines_of_page,
    lines_of_program,
    of_page,
    of_pages,
    of_program,
    refused,
    rows_of,
    spans,
    tables,
    too_many,
)
from tierfs.app.setup.place_settings import ARCHIVE, COLD
from tierfs.base.options import policy, settings, store_toml
from tierfs.base.options.policy import Policy
from tierfs.base.system.metrics import MetricKind, MetricName
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words import units
from tierfs.faces.cli import output
from tierfs.faces.cli.commands.man import pages as manual_pages
from tierfs.faces.cli.examples import EXAMPLES
from tierfs.mount import options

MONITORING = ROOT / "docs/monitoring.md"
SETTINGS_PAGE = ROOT / "docs/settings.md"

NO_COMMAND = re.compile(r"delete|help|[0-9.]+,?")
"""A word of another tool, which docs/quickstart.md takes for an example; `help VERB`; a version."""
OF_ENGLISH = {"as", "cannot", "error", "has", "itself", "knows", "mounts", "needs", "only", "stores", "that", "uses"}
"""What follows the program's name in a sentence."""
PLACEHOLDER = re.compile(r"no such command '[A-Z]+'")
"""Stands for any command."""

TABLE_OF_SETTINGS = "| setting | default | meaning |"
TABLE_OF_METRICS = "| metric | type | labels | meaning |"


def texts() -> Iterator[Code]:
    yield from of_pages()
    yield from of_program()


def named(pattern: str, codes: Iterable[Code] | None = None) -> Iterator[tuple[str, str]]:
    """Yield what the pattern's group finds, each with its place."""
    for code in texts() if codes is None else codes:
        for match in re.finditer(pattern, code.text):
            yield match[1], code.where


def missing(names: Iterable[tuple[str, str]], exists: Callable[[str], bool]) -> list[str]:
    return sorted({f"{where}: {name}" for name, where in names if not exists(name)})


@cache
def manual() -> str:
    """The text of all pages for users, without notes of design and the changelog."""
    return "\n".join(page.read_text() for page in MANUAL)


def undocumented(names: Iterable[str], page: Path | None = None) -> list[str]:
    text = manual() if page is None else page.read_text()
    return [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)]


# Commands.


def test_pages_name_command_lines_that_tierfs_takes() -> None:
    wrong = []
    for code in (*of_pages(), *of_page(CHANGES)):
        for line in lines_of_page(code):
            why = refused(line) or ("too many arguments" if too_many(line) else None)
            if why and not NO_COMMAND.fullmatch(line[1]) and not PLACEHOLDER.match(why):
                wrong.append(f"{code.where}: {' '.join(line)}: {why}")
    assert wrong == []


def test_the_program_names_commands_and_options_that_exist() -> None:
    wrong = [
        f"{code.where}: {' '.join(line)}: {why}"
        for code in of_program()
        for line in lines_of_program(code.text)
        if line[1] not in OF_ENGLISH and (why := refused(line)) and not PLACEHOLDER.match(why)
    ]
    assert wrong == []


def test_pages_show_every_command() -> None:
    shown = set()
    for page in MANUAL:
        for code in of_page(page):
            for line in lines_of_page(code):
                if refused(line) is None:
                    shown.add(command_of(line)[0])
    assert sorted(set(EXAMPLES) - shown) == []


def test_manual_pages_that_are_named_exist() -> None:
    made = {name.removesuffix(".1") for name, _ in manual_pages()}
    assert missing(named(r"\bman (tierfs[a-z-]*)"), made.__contains__) == []


def test_no_index_is_named_for_a_package_that_is_on_none() -> None:
    """A checkout's path or a wheel's file name is what pip is given."""
    plain = r"pip install (?:-\S+ )*('?tierfs(?:\[[^\]]*\])?'?)(?![\w.-])"
    assert missing(named(plain), lambda _: False) == []


# Settings, policies, options of a mount, the environment.


def is_setting(name: str) -> bool:
    return name in settings.names() or name in (*COLD, *ARCHIVE)


def test_settings_that_are_named_exist() -> None:
    sections = "|".join(sorted({name.partition(".")[0] for name in settings.names()}))
    files = {"standby.json", "admin.sock", "admin.token", "mount.log", "mount.tierfs", "mount.fuse"}
    names = named(rf"(?<![\w./-])((?:{sections})\.[a-z][a-z_]*)\b(?![.(])")
    assert missing(names, lambda name: is_setting(name) or name in files) == []


def test_what_config_is_given_in_prose_exists() -> None:
    pairs = [
        (key, code.where)
        for code in of_pages()
        for line in lines_of_page(code)
        if refused(line) is None and command_of(line)[0] == "config"
        for key, equals, _ in (word.partition("=") for word in command_of(line)[1])
        if equals and key.islower()
    ]
    assert len(pairs) > 20
    assert missing(pairs, lambda key: key in policy.KEYS or is_setting(key)) == []


def table_of_settings() -> str:
    """The table of docs/settings.md: the texts of store.toml."""
    rows = [TABLE_OF_SETTINGS, "|---|---|---|"]
    for name in defined_settings():
        section, key = name.split(".")
        annotation = settings.annotations_of(type(getattr(settings.Settings(), section)))[key]
        default = store_toml.unquoted(settings.default_of(name))
        rows.append(f"| `{name}` | {f'`{default}`' if default else 'empty'} | {text_of(annotation)} |")
    return "\n".join(rows) + "\n"


def text_of(annotation: Any) -> str:
    """The text of a setting, in the template and in the table."""
    return next(part for part in get_args(annotation)[1:] if isinstance(part, str))


def template_of_settings() -> str:
    """Return a store.toml of all sections, with every setting commented out, its default and its text."""
    lines = [
        "# Settings of this store; the values shown are the defaults. Sizes read like 64MiB, times like 1h30min.",
        "# To change one, uncomment it, or: tierfs config read.budget_bytes=512MiB",
        "# The environment overrides this file: TIERFS_READ__BUDGET_BYTES=512MiB",
    ]
    for section in fields(settings.Settings):
        values = getattr(settings.Settings(), section.name)
        lines += ["", f"[{section.name}]"]
        for key, annotation in settings.annotations_of(type(values)).items():
            lines += [
                f"## {text_of(annotation)}",
                f"# {key} = {settings.as_toml(annotation, getattr(values, key))}",
            ]
    return "\n".join(lines) + "\n"


def test_the_template_of_a_new_store_has_every_setting_with_its_default() -> None:
    assert settings.default_text() == template_of_settings(), "run: python -m tests.structure.test_prose"


def defined_settings() -> list[str]:
    """All names in the order of store.toml."""
    ordered, section = [], ""
    for line in settings.default_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif section and re.match(r"# \w+ = ", line):
            ordered.append(f"{section}.{line.split()[1]}")
    return ordered


def test_the_table_of_settings_is_that_of_the_program() -> None:
    assert set(defined_settings()) == settings.names()
    assert table_of_settings() in SETTINGS_PAGE.read_text(), "run: python -m tests.structure.test_prose"


def test_every_policy_is_in_a_table_with_its_default() -> None:
    listed = [
        (name, row)
        for page in ("docs/concepts.md", "docs/space.md")
        for title, rows in tables(ROOT / page)
        if title.startswith("| policy ")
        for row in rows
        for name in spans(row[0])
    ]
    assert sorted(set(policy.KEYS) - {name for name, _ in listed}) == []
    assert [name for name, _ in listed if name not in policy.KEYS] == []
    for name, row in listed:
        default = getattr(Policy(), policy.attribute(name))
        if len(row) == 3 and default is not None:
            shown = (spans(row[1]) or [row[1]])[0]
            assert policy.from_stored(name, policy.parse(name, shown)) == default, name


def test_every_option_of_a_mount_is_documented() -> None:
    assert undocumented((*options._FLAGS, *options._VALUES)) == []


def test_variables_of_the_environment_that_are_named_exist() -> None:
    makefile = [Code("Makefile", (ROOT / "Makefile").read_text())]
    read = {name for path in source_files() for name in re.findall(r"\bTIERFS_[A-Z_]+\b", path.read_text())}
    of_settings = {"TIERFS_" + name.upper().replace(".", "__") for name in settings.names()}
    known = read | of_settings | {"TIERFS_SECTION__KEY"}
    assert missing(named(r"\b(TIERFS_[A-Z_]+)\b", [*of_pages(), *makefile]), known.__contains__) == []


def source_files() -> list[Path]:
    folders = (ROOT / "tierfs", ROOT / "tests")
    return [path for folder in folders for path in folder.rglob("*.py") if path != Path(__file__)]


# Metrics, and labels of what is printed.


def test_metrics_that_are_named_exist_and_all_are_documented() -> None:
    others = {"tierfs_demo"}  # a package that docs/python.md writes
    assert missing(named(r"(?<![\w-])(tierfs_[a-z_]+)"), (set(MetricName) | others).__contains__) == []
    assert undocumented(MetricName, MONITORING) == []


def table_of_metrics() -> str:
    rows = [TABLE_OF_METRICS, "|---|---|---|---|"]
    for name in sorted(MetricName):
        kind = "gauge" if name.kind is MetricKind.SAMPLED else name.kind.value
        labels = ", ".join(f"`{label}`" for label in name.labels)
        rows.append(f"| `{name}` | {kind} | {labels} | {name.help} |")
    return "\n".join(rows) + "\n"


def test_the_table_of_metrics_is_the_programs() -> None:
    if table_of_metrics() not in MONITORING.read_text():
        pytest.fail("docs/monitoring.md: run python -m tests.structure.test_prose", pytrace=False)


def test_messages_that_are_quoted_are_printed() -> None:
    """A text of four words or more between backticks, without a sign of code."""
    said = "\n".join(" ".join(code.text.split()) for code in of_program())
    sentence = re.compile(r"[a-z…][A-Za-z',:; …-]*(?<! -)[A-Za-z…]")
    quoted = {
        code.text: code.where
        for page in MANUAL
        for code in of_page(page)
        if not code.language and sentence.fullmatch(code.text) and len(code.text.split()) > 3 and " -" not in code.text
    }
    typed = re.compile(r"(?:tierfs|make|apt|git|pulsar-admin|systemctl|topics) ")
    others = {
        "all files are copied",
        "store no cold tier",
    }  # what the page's own command echoes; an origin and its text
    messages = [text for text in quoted if not typed.match(text) and text not in others]
    assert len(messages) > 10
    parts = ((part.strip(), text) for text in messages for part in re.split(r"…| [A-Z]+\b", text))
    assert sorted({f"{quoted[text]}: {text}" for part, text in parts if part and part not in said}) == []


def test_sizes_in_samples_are_as_they_are_printed() -> None:
    samples = [code for page in MANUAL for code in of_page(page) if code.language in ("text", "console")]
    shown = list(named(r"(?<![\w.,])(\d[\d,.]* [KMGT]?i?B)(?!/)\b", samples))
    assert len(shown) > 10
    assert missing(shown, lambda text: output.size(units.parse_size(text)) == text) == []


# Files and targets.


def test_targets_of_make_that_are_named_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    commands = [code for code in of_pages() if code.text.startswith(("make ", "$ make "))]
    in_texts = named(r"(?:`|: |run )make ([a-z0-9-]+)(?=`|$)", of_program())
    assert missing([*named(r"\bmake ([a-z0-9-]+)", commands), *in_texts], targets.__contains__) == []
    listed = set(re.findall(r"^([a-z0-9-]+):.*##", makefile, re.MULTILINE))
    assert [name for name in sorted(listed) if not re.search(rf"\bmake {name}\b", manual())] == []


def test_files_that_are_named_exist() -> None:
    paths = named(r"(?<![\w./-])((?:docs|tests|tierfs|mount_helpers)/[\w/.-]*\w)")
    assert missing(paths, is_path) == []


def test_tests_and_modules_that_are_named_exist() -> None:
    files = list((ROOT / "tests").rglob("*.py"))
    tests = {name for path in files for name in re.findall(r"def (test_\w+)", path.read_text())}
    known = tests | {path.stem for path in files} | {"test_tierfs_demo"}  # a file that docs/python.md writes
    assert missing(named(r"\b(test_\w+)", of_pages()), known.__contains__) == []
    run = named(r"python (?:\S+ )*?-m ([\w.]+)", of_pages())
    assert missing(run, lambda name: find_spec(name) is not None) == []


def is_path(name: str) -> bool:
    """Whether a path exists: whole, or the number of a note of design."""
    return (ROOT / name).exists() or (
        re.fullmatch(r"docs/design/\d{4}", name) is not None and list(ROOT.glob(f"{name}-*.md")) != []
    )


def test_each_path_of_a_store_is_in_the_format() -> None:
    root = Path("/store")
    made = [member.fget(StorePaths(root)) for member in vars(StorePaths).values() if isinstance(member, property)]
    paths = {str(path.relative_to(root)) for path in [*made, StorePaths(root).mount("<device>")]}
    assert len(paths) > 10
    rows = rows_of(ROOT / "docs/format.md", "| path | content |")
    listed = {name.split("/XX")[0].rstrip("/") for row in rows for name in spans(row[0])}
    assert sorted(paths - listed - {"locks"}) == []  # a directory, of which each file is listed


@pytest.mark.parametrize(
    ("line", "is_refused"),
    [
        ("tierfs check --read", False),
        ("tierfs check --deep", True),
        ("tierfs ledger append t/1 file", False),
        ("tierfs ledger trim t", True),
        ("tierfs policy set logs a=b", True),
        ("tierfs info --at", False),
        ("tierfs -q --store /srv ls -l logs", False),
    ],
)
def test_a_command_line_is_read_as_the_program_reads_it(line: str, is_refused: bool) -> None:
    assert (refused(line.split()) is not None) is is_refused


def test_arguments_are_counted() -> None:
    assert [too_many(line.split()) for line in ("tierfs umount /mnt", "tierfs umount /srv /mnt", "tierfs rm a b")] == [
        False,
        True,
        False,
    ]


def test_the_sources_of_names_are_not_empty() -> None:
    assert len(of_pages()) > 2000
    assert len(of_program()) > 2000
    assert all(page in PAGES for page in MANUAL)
    assert CHANGES not in PAGES


def replaced(text: str, title: str, table: str) -> str:
    """Return a page with a table in place of the one with this title."""
    before, _, rest = text.partition(title + "\n")
    return before + table + re.sub(r"\A(?:\|.*\n)+", "", rest)


def main() -> None:
    """Write the template of a new store's settings, and the tables of settings and metrics into their pages."""
    settings.TEMPLATE.write_text(template_of_settings())
    SETTINGS_PAGE.write_text(replaced(SETTINGS_PAGE.read_text(), TABLE_OF_SETTINGS, table_of_settings()))
    MONITORING.write_text(replaced(MONITORING.read_text(), TABLE_OF_METRICS, table_of_metrics()))


if __name__ == "__main__":
    main()
