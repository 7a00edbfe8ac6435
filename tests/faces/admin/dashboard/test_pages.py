"""Pages of a real store: complete documents that lead to each other, with every name as text."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

from tests.commands import tierfs
from tests.faces.admin.dashboard.conftest import TOKEN, Site, site_of
from tests.faces.admin.dashboard.documents import Element
from tierfs import open_store as tierfs_store
from tierfs.base.words.names import printable
from tierfs.base.words.types import ChunkState, Tier
from tierfs.engine.metadata import chains, directories, tables
from tierfs.engine.metadata.tables import CHUNKS
from tierfs.engine.segments import create
from tierfs.faces.admin.dashboard import rendering, views
from tierfs.faces.admin.guard import Admission

ROOT = Path(__file__).parents[4]

HOSTILE = [
    "<script>alert(1)<",
    "\"onload='x' a=\"",
    "&lt;b&gt;&amp;",
    "%2e%2e%2F#?&=+;",
    "back\\slash",
    "{{ 7*7 }}{% raw %}",
    "שלום עולם.log",
    "e\u0301\u200b\u00ad\ufeff",
    "\U000e0041\ufffe\u2028",
    " blanks  around ",
    "n" * 255,
    "\U0001f40d" * 63,
]


POLICIES = ["logs", "chunk_bytes=4KiB", "offload_after=0"]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A store with some of everything."""
    path = tmp_path_factory.mktemp("site")
    with site_of(path) as site:
        store = site.store.path
        with tierfs_store(str(store)) as face:
            face.append("logs/web", b"x" * 20_000)
            tierfs("config", *POLICIES, store=store)
            face.append("logs/web", b"y" * 20_000, seal=True)
            for name in ("bad", "gone"):
                face.append(name, b"b" * 1000, seal=True)
            tierfs("offload", "logs", "bad", "gone", store=store)
            tierfs("evict", "--force", "gone", store=store)
            face.append("logs/open", b"z" * 100)
            for name in HOSTILE:
                face.append(f"hostile/{name}", b"1")
                face.append(f"deep/{name}/s", b"1")
        for topic in ("one", "two", "removed"):
            tierfs("ledger", "append", f"public/{topic}", "--lines", store=store, stdin=b"a\nb\n")
        tierfs("rm", "-ry", "public/removed", store=store)
        with site.store.metadata.write() as txn:
            for number in range(120):
                create.create(txn, f"many/{number:03d}")
        yield site


def links_of(document: Element) -> Iterator[str]:
    """Yield where a document leads to, and what it is made of."""
    for each in document.all():
        for name in ("href", "src", "action"):
            target = each.attributes.get(name)
            if target is not None:
                yield target


def crawled(site: Site) -> dict[str, Element]:
    """Every page that links lead to, with its document."""
    found: dict[str, Element] = {}
    waiting = ["/"]
    while waiting:
        target = waiting.pop()
        if target in found:
            continue
        found[target] = site.page(target)
        for link in links_of(found[target]):
            split = urlsplit(urljoin(target, link))
            assert (split.scheme, split.netloc) == ("", ""), link
            if split.path.startswith("/assets/"):
                assert site.ask("GET", split.path).status_code == 200
            elif split.path != "/logout":
                waiting.append(split.path + (f"?{split.query}" if split.query else ""))
    return found


def test_pages_lead_to_each_other_and_to_nothing_else(many: Site) -> None:
    found = crawled(many)
    assert {
        "/",
        "/browse/",
        "/ledgers",
        "/logs",
        "/policies",
        "/cost",
        "/work",
        "/browse/many?after=099",
    } <= found.keys()
    with many.store.metadata.read() as txn:
        assert len(found) > txn.count(b"segments")
    for target, document in found.items():
        tags = [each.tag for each in document.all()]
        assert (tags.count("h1"), tags.count("main"), tags.count("title")) == (1, 1, 1), target
        ids = [each.attributes["id"] for each in document.all() if "id" in each.attributes]
        assert len(ids) == len(set(ids)), target
        for each in document.all():
            assert not [name for name in each.attributes if name.startswith("on") or name == "style"], target
            assert each.tag not in ("style", "iframe", "object", "base"), target
            assert each.tag != "script" or (each.attributes.get("src") == "/assets/live.js" and not each.text), target


def test_every_answer_lets_in_nothing_but_this_server(many: Site) -> None:
    for target in ("/", "/browse/none", "/login", "/assets/live.js", "/browse/?x=1"):
        policy = many.ask("GET", target).headers["content-security-policy"].split("; ")
        assert policy[0] == "default-src 'none'"
        assert all(each.endswith(("'none'", "'self'", "'script'")) for each in policy), target
    assert not [text for text in ("innerHTML", "eval(", "document.write") if text in rendered("live.js")]


def rendered(name: str) -> str:
    found = rendering.asset(f"/assets/{name}")
    assert found is not None
    return bytes(found.body).decode()


def test_names_are_text_and_lead_to_their_segments(many: Site) -> None:
    names = {printable(name) for name in HOSTILE}
    listing = many.page("/browse/hostile").by_id("names")
    shown = {each.children[0].children[0]: each for each in listing.all("a") if isinstance(each.children[0], Element)}
    assert shown.keys() == names
    for name, link in shown.items():
        page = many.page(str(link.attributes["href"]))
        (title,) = page.all("h1")
        assert isinstance(title.children[0], Element)
        assert title.children[0].children == [name]
        (of_page,) = page.all("title")
        assert " ".join(f"warning: hostile/{name} · tierfs".split()) == of_page.text
    assert many.page("/browse/deep").by_id("names").text.count("directory") == len(HOSTILE)


def test_a_long_listing_comes_in_pages_that_have_each_name_once(many: Site) -> None:
    seen, target = list[str](), "/browse/many"
    while target:
        page = many.page(target)
        seen += [row[0] for row in page.by_id("names").rows()]
        target = next((str(link.attributes["href"]) for link in page.all("a") if link.text == "Next page"), "")
    assert seen == [f"{number:03d}" for number in range(120)]


def bars_of(page: Element) -> list[list[str | None]]:
    """The kinds of the parts of each bar of a map."""
    return [[rect.attributes["class"] for rect in bar.all("rect")] for bar in page.all("svg", "map")]


def test_a_segment_shows_where_its_bytes_are(many: Site) -> None:
    page = many.page("/browse/logs/web")
    assert "Bytes 0 … 40,000 (39.1 KiB), sealed, reads local-first." in page.by_id("map").text
    assert (
        page.by_id("facts").facts()["CRC32C"]
        == tierfs("--json", "info", "logs/web", store=many.store.path).json["crc32c"]
    )
    told = tierfs("--json", "info", "--map", "logs/web", store=many.store.path).json["chunks"]
    for tier in ("local", "cold"):
        rows = page.by_id(f"{tier}-chunks").rows()
        assert [(row[0], row[3]) for row in rows] == [
            (f"{chunk['start']:,} … {chunk['end']:,}", chunk["object"]) for chunk in told if chunk["tier"] == tier
        ]
    assert bars_of(page) == [["track", "good"], ["track", "good"]]
    bars = [
        [rect.attributes["class"] for rect in bar.all("rect")]
        for bar in many.page("/browse/logs/open").all("svg", "map")
    ]
    assert bars == [["track", "active"], ["track"]]


def test_a_segment_of_very_many_chunks_is_shown_by_samples(many: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "MOST_CHUNKS", 2)
    page = many.page("/browse/logs/web")
    assert "shows a sample" in page.by_id("map").text
    assert page.by_id("facts").facts()["CRC32C"] == "unknown"
    assert bars_of(page) == [["track", "good"], ["track", "good"]]


def test_damage_is_shown_in_the_map_and_in_words(many: Site) -> None:
    with many.store.metadata.write() as txn:
        for name, tier, state in (("bad", Tier.LOCAL, ChunkState.SUSPECT), ("gone", Tier.COLD, ChunkState.LOST)):
            record = directories.segment_by_name(txn, name)
            (chunk,) = chains.chunks(txn, record.id, tier)
            txn.put(CHUNKS, tables.chunk(record.id, tier, 0), replace(chunk, state=state))
    bad, gone = many.page("/browse/bad"), many.page("/browse/gone")
    assert bars_of(bad) == [["track", "suspect"], ["track", "good"]]
    assert bars_of(gone) == [["track"], ["track", "lost"]]
    assert [each.text for each in bad.all("p", "warning-text")] == [
        "Suspect: a local copy of bytes 0 … 1,000 was missing or damaged."
    ]
    assert [each.text for each in gone.all("p", "critical-text")] == [
        "Lost: bytes 0 … 1000 (1000 B). To repair: tierfs check --read --repair"
    ]
    assert [row[2] for row in gone.by_id("cold-chunks").rows()] == ["lost"]


def test_bytes_in_a_place_that_is_away_are_shown(many: Site) -> None:
    cold = many.store.path.parent / "cold"
    cold.rename(cold.with_name("away"))
    try:
        (text,) = [each.text for each in many.page("/browse/logs/web").all("p", "critical-text")]
    finally:
        cold.with_name("away").rename(cold)
    assert text.startswith("Not reachable: 39.1 KiB in file:")


def test_chunks_come_in_pages(many: Site) -> None:
    later = many.page("/browse/logs/web?local=39000").by_id("local-chunks").rows()
    assert [row[0] for row in later][-1].endswith("40,000")
    assert len(later) == 1
    assert len(many.page("/browse/logs/web?local=39000").by_id("cold-chunks").rows()) > 0, "the other tier stays"


def test_ledgers_are_listed_by_age_without_removed_ones(many: Site) -> None:
    rows = many.page("/ledgers").by_id("ledgers").rows()
    assert [(row[0].rpartition("/")[0], *row[1:]) for row in rows] == [
        ("public/one", "open", "2", "4 B", "none"),
        ("public/two", "open", "2", "4 B", "none"),
    ]
    first = next(link for link in many.page("/ledgers").by_id("ledgers").all("a"))
    assert many.page(str(first.attributes["href"])).by_id("facts").facts()["entries"] == "2"


def test_policies_are_shown_with_their_origin(many: Site) -> None:
    assert many.page("/policies").by_id("places").rows() == [["logs", " ".join(POLICIES[1:]).replace("=0", "=0s")]]
    rows = {row[0]: row[1:] for row in many.page("/browse/logs/web").rows() if len(row) == 3}
    assert rows["chunk_bytes"] == ["4KiB", "directory logs"]
    assert rows["trash_age"] == ["1d", "built-in"]


def test_what_is_not_there_is_a_page_that_says_so(many: Site) -> None:
    page = many.page("/browse/hostile/%3Cb%3Enone", 404)
    assert next(iter(page.all("p", "critical-text"))).text == "hostile/<b>none does not exist"
    for target in (
        "/?x=1",
        "/browse/?after=a&after=b",
        "/ledgers?after=-1",
        "/work?after=x",
        "/browse/a%00b",
        "/logs?after=..",
    ):
        assert next(iter(many.page(target, 400).all("h1"))).text == "This page cannot be shown"
    assert bytes(many.ask("GET", "/assets/../pages.py").body).startswith(b'{"error": "NotFound"')


def test_pages_are_only_read(many: Site) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        answer = many.ask(method, "/browse/logs")
        assert (answer.status_code, answer.headers["content-type"]) == (405, "text/html; charset=utf-8")
    assert many.ask("HEAD", "/").status_code == 200


def test_a_login_begins_a_session_and_a_logout_ends_it(many: Site) -> None:
    form = next(iter(many.page("/login?to=/work").all("form")))
    assert [each.attributes.get("value") for each in form.all("input")] == ["/work", None]
    done = many.ask("POST", "/login", f"to=%2Fwork&token={TOKEN}".encode())
    assert (done.status_code, done.headers["location"]) == (303, "/work")
    assert many.admission.sessions is not None
    assert many.admission.sessions.is_open([done.headers["set-cookie"].partition(";")[0].encode()])
    for body in (
        b"token=wrong",
        b"to=%2Fwork",
        f"token={TOKEN}&token={TOKEN}".encode(),
        f"token={TOKEN[:-1]}".encode(),
    ):
        failed = many.ask("POST", "/login", body)
        assert (failed.status_code, failed.headers.get("set-cookie")) == (403, None), body
        assert b"This is not the token" in bytes(failed.body)
    for body in (b"\xff", b"token", b"a=1&b=2&c=3", b"token=%ff"):
        assert many.ask("POST", "/login", body).status_code == 400, body
    assert many.ask("POST", "/login", b"token=" + b"x" * 5000).status_code == 413
    ended = many.ask("POST", "/logout")
    assert (ended.status_code, ended.headers["location"]) == (303, "/login")
    assert "Max-Age=0" in ended.headers["set-cookie"]
    assert many.ask("GET", "/logout").status_code == 405


def test_the_socket_has_no_login(many: Site) -> None:
    for method, target in (("GET", "/login"), ("POST", "/login"), ("POST", "/logout")):
        answer = many.ask(method, target, admission=Admission())
        assert (answer.status_code, answer.headers["location"], answer.headers.get("set-cookie")) == (303, "/", None)
    assert b"Log out" not in bytes(many.ask("GET", "/", admission=Admission()).body)
    assert b"Log out" in bytes(many.ask("GET", "/").body)


def test_without_jinja2_a_page_says_what_to_install(many: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    rendering.environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    answers = [many.ask("GET", target) for target in ("/", "/browse/none", "/login", "/?x=1")]
    rendering.environment.cache_clear()
    for answer in answers:
        assert answer.status_code == 501
        assert b"the dashboard needs the package jinja2" in bytes(answer.body)
        assert b"pip install" in bytes(answer.body)


def test_the_server_starts_without_reading_a_template() -> None:
    code = "import sys, tierfs.faces.admin.listen; print('jinja2' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False\n"


def test_an_installed_package_has_the_templates_and_assets() -> None:
    setup = (ROOT / "setup.py").read_text()
    listed = re.search(r'"tierfs\.faces\.admin\.dashboard": (\[.*?\])', setup)
    assert listed is not None
    folder = ROOT / "tierfs/faces/admin/dashboard"
    packed = {file for pattern in ast.literal_eval(listed[1]) for file in folder.glob(pattern)}
    assert packed == {file for file in folder.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")}
