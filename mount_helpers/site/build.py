"""Build the documents as a site: `build.py DIRECTORY`.

Pages keep the links that a code host follows: relative paths of .md files. They are copied next to each other, with
their links changed to the copies, and Sphinx makes HTML of them; each of its warnings is an error. Then every link of
the HTML is followed, and nothing in it may request anything from another host. `make site` calls this.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DOCS = ROOT / "docs"
NOTES = DOCS / "design"
FIRST = "index.md"
OTHERS = "files"
"""Directory of copied files that are not documents."""

_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)

_LOADED = {"audio": "src", "embed": "src", "iframe": "src", "img": "src", "link": "href", "object": "data"}
_LOADED |= {"script": "src", "source": "src", "track": "src", "video": "src"}
"""Attributes whose address a browser requests by itself."""
_OF_STYLE = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])((?:https?:)?//[^'\")\s]+)")
_OF_SCRIPT = re.compile(
    r"(?:\bfetch|\bimport|\bimportScripts|\bopen|\bsrc\s*=|\bhref\s*=)\s*\(?\s*['\"`](https?://[^'\"`]+)"
)

_SEARCHED = [(suffix, _OF_STYLE) for suffix in (".css", ".svg", ".html")] + [(".js", _OF_SCRIPT), (".html", _OF_SCRIPT)]


@dataclass(frozen=True)
class Part:
    """A part of the navigation."""

    title: str
    pages: tuple[str, ...]


def parts() -> list[Part]:
    """Return the navigation, without the notes of design."""
    document = tomllib.loads((HERE / "nav.toml").read_text())
    return [Part(part["title"], tuple(part["pages"])) for part in document["part"]]


def copy_of(source: Path) -> str:
    """Return the place of a file's copy; all links to the file lead there."""
    if source == ROOT / "README.md":
        return FIRST
    if source == NOTES:
        return f"{NOTES.name}/{FIRST}"
    if source.is_relative_to(DOCS):
        return str(source.relative_to(DOCS))
    return source.name if source.suffix == ".md" else f"{OTHERS}/{source.relative_to(ROOT)}"


def moved(page: Path) -> tuple[str, set[Path]]:
    """Return a page with links to the copies, and the files outside docs/ to which it links."""
    linked, at = set[Path](), Path("/", copy_of(page)).parent

    def link(match: re.Match[str]) -> str:
        there = Path(os.path.normpath(page.parent / match[2]))
        if urlsplit(match[2]).scheme or not there.exists():
            return match[0]
        if not there.is_relative_to(DOCS) and there.suffix != ".md":
            linked.add(there)
        return f"{match[1]}{os.path.relpath(Path('/', copy_of(there)), at)}{match[3] or ''}{match[4]}"

    return _LINK.sub(link, page.read_text()), linked


def stage(directory: Path) -> None:
    """Copy all documents, with the navigation at the end of the first page."""
    shutil.copytree(DOCS, directory, dirs_exist_ok=True)
    shutil.copy(HERE / "conf.py", directory)
    for page in (ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")):
        text, linked = moved(page)
        (directory / copy_of(page)).write_text(text)
        for file in linked:
            copy = directory / copy_of(file)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)
    notes = sorted(note.stem for note in NOTES.glob("*.md"))
    first = directory / FIRST
    trees = [*(tree(part.title, part.pages) for part in parts()), tree("Design notes", [f"{NOTES.name}/index"])]
    first.write_text("\n".join([first.read_text(), *trees]))
    of_notes = "# Design notes\n\nDecisions, each with its reason and the measurements of its time.\n\n"
    (directory / copy_of(NOTES)).write_text(of_notes + tree("", notes))


def tree(title: str, names: tuple[str, ...] | list[str]) -> str:
    """Return a part of the navigation in Sphinx' words; with a title it is in the margin of each page alone."""
    options = [":maxdepth: 1", *([":hidden:", f":caption: {title}"] if title else [])]
    return "\n".join(["```{toctree}", *options, "", *names, "```", ""])


class Html(HTMLParser):
    """The names and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.names |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if values.get(_LOADED.get(tag, "")):
            self.loaded.append(values[_LOADED[tag]])
        self.loaded += [address for _, address in _srcset(values.get("srcset", ""))]
        self.loaded += _OF_STYLE.findall(values.get("style", ""))


def _srcset(text: str) -> Iterator[tuple[str, str]]:
    for candidate in filter(None, (part.strip() for part in text.split(","))):
        yield candidate, candidate.split()[0]


def problems(site: Path) -> Iterator[str]:
    """Yield each link of a site that leads nowhere, and each request to another host."""
    html = cache(lambda path: Html(path.read_text()))
    for path in sorted(site.rglob("*.html")):
        name = path.relative_to(site)
        page = html(path)
        yield from (f"{name} requests {address}" for address in page.loaded if is_elsewhere(address))
        for address in [*page.links, *page.loaded]:
            parsed = urlsplit(address)
            if parsed.scheme or parsed.netloc or is_elsewhere(address):
                continue
            there = Path(os.path.normpath(path.parent / unquote(parsed.path))) if parsed.path else path
            if not there.exists():
                yield f"{name} links to {address}, which does not exist"
            elif parsed.fragment and there.suffix == ".html" and unquote(parsed.fragment) not in html(there).names:
                yield f"{name} links to {address}: no such section"
    for suffix, pattern in _SEARCHED:
        for path in sorted(site.rglob(f"*{suffix}")):
            text = path.read_text() if suffix != ".html" else "\n".join(_inline(path.read_text()))
            yield from (f"{path.relative_to(site)} requests {match}" for match in pattern.findall(text))


def _inline(text: str) -> list[str]:
    """Return the styles and scripts that a page contains."""
    return re.findall(r"<(?:style|script)[^>]*>(.*?)</(?:style|script)>", text, re.DOTALL)


def is_elsewhere(address: str) -> bool:
    """Return whether an address is on another host."""
    return address.startswith("//") or urlsplit(address).scheme in ("http", "https", "ws", "wss")


def main() -> None:
    """Build it. Exits with 1 for a warning of Sphinx, a link that leads nowhere, or a request to another host."""
    site = Path(sys.argv[1]).absolute()
    version = _VERSION.search((ROOT / "tierfs/__init__.py").read_text())
    assert version is not None
    shutil.rmtree(site, ignore_errors=True)
    with TemporaryDirectory() as work:
        stage(Path(work, "pages"))
        words = ["-q", "-n", "-W", "--keep-going", "-b", "html", "-d", f"{work}/trees", f"{work}/pages", str(site)]
        environment = {**os.environ, "TIERFS_VERSION": version[1]}
        done = subprocess.run([sys.executable, "-m", "sphinx", *words], env=environment, check=False)
    found = list(problems(site)) if site.exists() else []
    for problem in found:
        print(problem, file=sys.stderr)
    if done.returncode or found:
        sys.exit(1)
    (site / ".buildinfo").unlink(missing_ok=True)
    print(f"{site}/index.html: {len(list(site.rglob('*.html')))} pages")


if __name__ == "__main__":
    main()
