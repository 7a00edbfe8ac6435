"""The runner of a document's blocks notices what does not hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import Reader, blocks_of, commands_of

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
rm -rf /
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


def test_what_holds(tmp_path: Path) -> None:
    done = reader(tmp_path, GOOD)
    assert done.run() == 2
    assert done.names["value"] == 42
    assert (tmp_path / "here").read_text() == f"{tmp_path}\n"


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("42 …!", "43 …!", "doc.md:9 promises"),
        ("one two\n", "one three\n", "doc.md:19 promises"),
        ("$ cat here", "$ cat nowhere", "doc.md:19: cat nowhere"),
    ],
)
def test_what_does_not(tmp_path: Path, good: str, bad: str, message: str) -> None:
    assert good in GOOD
    with pytest.raises(AssertionError, match=message):
        reader(tmp_path, GOOD.replace(good, bad)).run()


def test_errors_name_the_documents_line(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        reader(tmp_path, GOOD.replace("6 * 7", "6 / 0")).run()
    assert (str(caught.traceback[-1].path), caught.traceback[-1].lineno + 1) == (str(tmp_path / "doc.md"), 4)


def test_blocks_and_commands() -> None:
    assert [(block.language, block.line) for block in blocks_of(GOOD)] == [
        ("python", 4),
        ("text", 9),
        ("", 15),
        ("console", 19),
    ]
    assert list(commands_of("$ a\n1\n2\n$ b\n")) == [("a\n", "1\n2\n"), ("b\n", "")]
