"""Links between documents, and the navigation of the site, lead to pages and sections that are there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("**/*.md")]


def anchors(page: Path) -> set[str]:
    """Return the names of a page's sections, as a link has them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", re.sub(r"\[(.+?)\]\(.+?\)", r"\1", title)).lower().replace(" ", "-") for title in titles
    }


def test_every_link_leads_somewhere() -> None:
    wrong = []
    for page in PAGES:
        for target, anchor in re.findall(r"\]\((?!https?://)([^)#]*)#?([^)]*)\)", page.read_text()):
            there = page.parent / target if target else page
            if not there.exists() or (anchor and anchor not in anchors(there)):
                wrong.append(f"{page.relative_to(ROOT)}: {target}#{anchor}")
    assert wrong == []


def test_the_site_has_every_page_in_its_navigation_once() -> None:
    parts = tomllib.loads((ROOT / "mount_helpers/site/nav.toml").read_text())["part"]
    pages = [page.stem for page in PAGES[1:] if page.parent != ROOT / "docs/design"]
    assert sorted(name for part in parts for name in part["pages"]) == sorted(pages)


def test_readme_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\(docs/(\S+?\.md)\)", PAGES[0].read_text()))
    assert linked == {page.name for page in (ROOT / "docs").glob("*.md")}
