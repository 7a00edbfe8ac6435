"""The dashboard in a real Chromium: nothing from elsewhere, no error, no obstacle that axe knows, right without script.

One visit of some seconds serves all tests of this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.commands import tierfs
from tests.faces.admin.conftest import serving
from tests.servers.browser_visits import BrowserVisit, why_not
from tierfs import open_store
from tierfs.app.setup.create import init_store
from tierfs.engine.chunkstore.place import Place

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
    pytest.mark.timeout(240),
    pytest.mark.xdist_group(__name__),
]

HOSTILE = ["<script>alert(1)<", "\"onload='x' a=\"", "{{ 7*7 }}", "שלום.log", "n" * 255]
PAGES = ["/", "/browse/hostile", f"/browse/hostile/{quote(HOSTILE[0])}", "/policies", "/logs"]
NARROW, WIDE = 360, 1400
LOOKS = ((NARROW, "dark"), (WIDE, "light"))
MORE_LOOKS = ((NARROW, "light"), (WIDE, "dark"))
"""No colour depends on a width, and no place on a theme: each width and each theme is in both."""
NAVIGATION = ["Skip to the content", "Status", "Segments", "Ledgers", "Logs", "Policies", "Cost", "Work", "Log out"]


@pytest.fixture(scope="module")
def port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        number: int = free.getsockname()[1]
    return number


@pytest.fixture(
    scope="module",
    params=[LOOKS, pytest.param(MORE_LOOKS, marks=pytest.mark.whole)],
    ids=["one width each", "the others"],
)
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, port: int
) -> Iterator[dict[str, Any]]:
    """What the browser saw of a store with bytes in both tiers, a problem and hostile names."""
    path = tmp_path_factory.mktemp("seen")
    store = init_in(path)
    with open_store(str(store)) as face:
        face.append("logs/web", b"x" * 20_000)
        tierfs("config", "logs", "chunk_bytes=4KiB", store=store)
        face.append("logs/web", b"y" * 20_000)
        tierfs("offload", "logs", store=store)
        for name in HOSTILE:
            face.append(f"hostile/{name}", b"1")
    (path / "app.log").write_text("one\n")
    tierfs("follow", path / "app.log", "--into", "app", "--once", store=store)
    with serving(store, listen=f"127.0.0.1:{port}"):
        token = (store / "admin.token").read_text().strip()
        visit = BrowserVisit(f"http://127.0.0.1:{port}", token, PAGES, request.param, keys=len(NAVIGATION) + 2)
        yield visit.seen() | {"looks": request.param}


def init_in(path: Path) -> Path:
    (path / "cold").mkdir()
    init_store(path / "store", Place.in_directory(path / "cold"))
    return path / "store"


def test_every_page_is_shown_in_each_width_and_theme(seen: dict[str, Any]) -> None:
    shown = [(visit["path"], visit["width"], visit["theme"]) for visit in seen["visits"]]
    assert shown == [(path, width, theme) for width, theme in seen["looks"] for path in PAGES]
    assert {visit["status"] for visit in seen["visits"]} == {200}
    assert [visit["path"] for visit in seen["visits"] if visit["overflow"] > 0] == [], "nothing is beyond the edge"
    assert len({(visit["theme"], visit["background"]) for visit in seen["visits"]}) == 2, "a theme is one colour"


def test_a_page_requests_nothing_of_another_host_and_has_no_error(seen: dict[str, Any], port: int) -> None:
    assert len(seen["requests"]) > len(PAGES)
    assert [url for url in seen["requests"] if not url.startswith(f"http://127.0.0.1:{port}/")] == []
    assert seen["errors"] == []


def test_axe_finds_no_obstacle_in_any_width_and_theme(seen: dict[str, Any]) -> None:
    assert [(visit["path"], visit["width"], visit["theme"], visit["violations"]) for visit in seen["visits"]] == [
        (visit["path"], visit["width"], visit["theme"], []) for visit in seen["visits"]
    ]
    assert seen["login"]["violations"] == []


def test_hostile_names_are_text_in_a_browser(seen: dict[str, Any]) -> None:
    for visit in seen["visits"]:
        if visit["path"] == "/browse/hostile":
            assert set(HOSTILE) <= set(visit["links"])
        if visit["path"] == PAGES[2]:
            assert visit["text"].splitlines()[-1] != ""
            assert visit["title"].endswith(f"hostile/{HOSTILE[0]} · tierfs")


def test_the_keyboard_reaches_everything_and_shows_where_it_is(seen: dict[str, Any]) -> None:
    assert [key["text"] for key in seen["keys"]] == [*NAVIGATION, "Pause updates", "Reload"]
    assert all(key["outlined"] for key in seen["keys"])


def test_a_page_updates_itself_until_it_is_paused_and_says_when_it_cannot(seen: dict[str, Any]) -> None:
    assert seen["live"] == {
        "changed": True,
        "focused": "A",
        "paused": ["Updates are paused.", "Resume updates"],
        "away": "Not updated: the server does not answer.",
    }


def test_pages_are_complete_without_javascript(seen: dict[str, Any]) -> None:
    texts = {visit["path"]: visit["text"] for visit in seen["visits"] if visit["width"] == WIDE}
    for plain in seen["plain"]:
        assert plain["buttons"] == ["Log out"], "no button that does nothing"
        assert len(plain["text"]) >= len(texts[plain["path"]]) - 10, plain["path"]


def test_a_browser_logs_in_and_out(seen: dict[str, Any]) -> None:
    login = seen["login"]
    assert login["failed"] == "This is not the token of this server."
    assert login["at"].endswith("/login?to=%2F")
    assert login["after"].endswith("/login")
    assert login["out"].endswith("/login?to=%2F"), "the session is over"
