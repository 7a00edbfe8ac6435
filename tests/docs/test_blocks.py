"""The runner of a document's blocks notices what does not hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import Block, Reader, Typed, blocks_of, prompted, typed
from tests.docs.shell import INSTALLED_TIERFS

GOOD = """# A document

```python
value = 6 * 7
print(value, name)
```

```text
42 …!
```

Not run:

```
exit 3
```

<!-- not run: it takes hours -->
```sh
exit 3
```

```sh
kept=three                        # a comment
mkdir inner && cd inner

for word in one two "$kept"; do
    echo $word
done | tail -n 1 > last
tail -f last                      # until Ctrl-C
cd ..
```

```text
three
```

```console
$ echo one \\
> two
one two
$ echo /srv/store > here; pwd
…
$ cat here
/srv/store
```
"""


def reader(tmp_path: Path, text: str) -> Reader:
    (tmp_path / "doc.md").write_text(text)
    return Reader(tmp_path / "doc.md", tmp_path, replace={"/srv/store": str(tmp_path)}, names={"name": "reader!"})


def test_a_document_that_holds_runs_to_its_end(tmp_path: Path) -> None:
    done = reader(tmp_path, GOOD)
    assert done.run() == 3
    assert done.names["value"] == 42
    assert (tmp_path / "here").read_text() == f"{tmp_path}\n"


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("42 …!", "43 …!", "doc.md:9 promises"),
        ("mkdir inner &&", "mkdri inner &&", "doc.md:25: mkdri inner"),
        ("tail -n 1", "tial -n 1", "doc.md:27: for word in one"),
        ("kept=three", "kept=four", "doc.md:35 promises"),
        ("tail -f last", "tial -f last", "doc.md:30: tial -f last"),
        ("cd ..", "cd $elsewhere", "doc.md:31: cd"),
        ("<!-- not run: it takes hours -->", "<!-- not run -->", "of 1 markers"),
        ("<!-- not run: it takes hours -->", "<!-- not run: -->", "of 1 markers"),
        ("<!-- not run: it takes hours -->\n", "<!-- not run: it takes hours -->\n\n", "of 1 markers"),
        ("one two\n", "one three\n", "doc.md:39 promises"),
        ("$ cat here", "$ cat nowhere", "doc.md:44: cat nowhere"),
    ],
)
def test_a_document_that_does_not_hold_is_told_why(tmp_path: Path, good: str, bad: str, message: str) -> None:
    assert good in GOOD
    with pytest.raises(AssertionError, match=message):
        reader(tmp_path, GOOD.replace(good, bad)).run()


def test_commands_are_those_of_the_directory_of_programs_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "installed/tierfs"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho installed: $*\n")
    program.chmod(0o755)
    monkeypatch.setenv(INSTALLED_TIERFS, str(program.parent))
    assert reader(tmp_path, "```console\n$ tierfs --version\ninstalled: --version\n```\n").run() == 1


def test_errors_name_the_documents_line(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        reader(tmp_path, GOOD.replace("6 * 7", "6 / 0")).run()
    assert (str(caught.traceback[-1].path), caught.traceback[-1].lineno + 1) == (str(tmp_path / "doc.md"), 4)


def test_blocks_and_commands_are_taken_from_the_text() -> None:
    assert [(block.language, block.line, block.not_run) for block in blocks_of(GOOD)] == [
        ("python", 4, ""),
        ("text", 9, ""),
        ("", 15, ""),
        ("sh", 20, "it takes hours"),
        ("sh", 24, ""),
        ("text", 35, ""),
        ("console", 39, ""),
    ]
    assert list(prompted(Block("console", "$ a\n1\n2\n$ b\n", 7))) == [Typed("a\n", 7, "1\n2\n"), Typed("b\n", 10)]
    assert list(typed(Block("sh", "# why\na \\\n  b\n\nc '\n'\n", 7))) == [
        Typed("a \\\n  b\n", 8),
        Typed("c '\n'\n", 11),
    ]
    with pytest.raises(AssertionError, match="no end of: for"):
        list(typed(Block("sh", "for a in b; do\n", 7)))
