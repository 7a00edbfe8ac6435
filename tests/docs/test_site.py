"""Pages of the site keep their links; a link that leads nowhere and a request to another host are found."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.blocks import ROOT

BUILD = ROOT / "mount_helpers/site/build.py"


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = spec_from_file_location("site_build", BUILD)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("page", "link", "changed"),
    [
        ("README.md", "[a](docs/space.md#disk-space)", "[a](space.md#disk-space)"),
        ("README.md", "[a](docs/design/)", "[a](design/index.md)"),
        ("README.md", "[a](CHANGELOG.md)", "[a](CHANGELOG.md)"),
        ("docs/security.md", "[a](../README.md#guarantees)", "[a](index.md#guarantees)"),
        ("docs/operations.md", "[a](../CHANGELOG.md)", "[a](CHANGELOG.md)"),
        ("docs/design/0026-links.md", "[a](../benchmarks.md#spark)", "[a](../benchmarks.md#spark)"),
        ("docs/space.md", "[a](../setup.py)", "[a](files/setup.py)"),
        ("docs/space.md", "[a](#endless-streams) [b](https://example.com/x.md)", ""),
        ("docs/space.md", "[a](nothing.md)", ""),
    ],
)
def test_links_lead_to_the_copies(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str, link: str, changed: str
) -> None:
    for name in ("README.md", "CHANGELOG.md", "setup.py", "docs/space.md", "docs/benchmarks.md", "docs/design/a.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name, place in {"ROOT": tmp_path, "DOCS": tmp_path / "docs", "NOTES": tmp_path / "docs/design"}.items():
        monkeypatch.setattr(build, name, place)
    (tmp_path / page).write_text(link)
    text, linked = build.moved(tmp_path / page)
    assert text == (changed or link)
    assert linked == ({tmp_path / "setup.py"} if "setup.py" in link else set())


GOOD = """<html><head><link rel="stylesheet" href="a.css"><script src="a.js"></script></head>
<body id="top"><a href="#top">up</a> <a href="b.html#there">there</a> <a href="https://example.com/">elsewhere</a>
<img src="data:image/png;base64,AA=="></body></html>"""


@pytest.mark.parametrize(
    ("file", "good", "bad", "problem"),
    [
        ("a.html", "b.html#there", "c.html", "a.html links to c.html, which does not exist"),
        ("a.html", "b.html#there", "b.html#here", "a.html links to b.html#here: no such section"),
        ("a.html", "#top", "#bottom", "a.html links to #bottom: no such section"),
        ("a.html", '"a.css"', '"https://fonts.example/a.css"', "a.html requests https://fonts.example/a.css"),
        ("a.html", '"a.js"', '"//cdn.example/a.js"', "a.html requests //cdn.example/a.js"),
        ("a.html", '"a.js"', '"b.js"', "a.html links to b.js, which does not exist"),
        ("a.html", "<body ", "<body style='background: url(http://x.example/a.png)' ", "a.html requests http://x.exam"),
        (
            "a.html",
            "</head>",
            "<style>@import '//x.example/a.css';</style></head>",
            "a.html requests //x.example/a.css",
        ),
        ("a.html", "</head>", "<script>fetch('https://x.example/')</script></head>", "a.html requests https://x.exam"),
        ("a.css", "red", "red; src: url('https://x.example/f.woff')", "a.css requests https://x.example/f.woff"),
        ("a.svg", "red", "red; src: url('https://x.example/f.woff')", "a.svg requests https://x.example/f.woff"),
        ("a.js", "1", "import('https://x.example/m.js')", "a.js requests https://x.example/m.js"),
    ],
)
def test_what_is_wrong_in_a_site_is_found(
    build: ModuleType, tmp_path: Path, file: str, good: str, bad: str, problem: str
) -> None:
    files = {"a.html": GOOD, "b.html": '<p id="there">', "a.css": "p {color: red}", "a.js": "1"}
    files["a.svg"] = "<svg><style>p {color: red}</style></svg>"
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert list(build.problems(tmp_path)) == []
    assert good in files[file]
    (tmp_path / file).write_text(files[file].replace(good, bad))
    (found,) = build.problems(tmp_path)
    assert found.startswith(problem)


@pytest.mark.whole
@pytest.mark.timeout(600)
def test_the_site_is_built(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="make site installs Sphinx")
    done = subprocess.run([sys.executable, BUILD, tmp_path / "site"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "site/index.html").is_file()
