"""A store whose dashboard answers in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from tests.doubles.manual_clock import ManualClock
from tests.faces.admin.dashboard.documents import Element, parsed
from tierfs.app.setup.create import init_store
from tierfs.app.store import Store, open_store
from tierfs.base.system.clock import Clock
from tierfs.engine.chunkstore.place import Place
from tierfs.faces.admin.bodies import Bodies
from tierfs.faces.admin.dashboard.pages import Dashboard
from tierfs.faces.admin.dashboard.sessions import LoginSessions
from tierfs.faces.admin.dashboard.views import Views
from tierfs.faces.admin.guard import Admission
from tierfs.faces.admin.offloads import Offloads

TOKEN = "a-token-of-enough-characters"


@dataclass
class Site:
    """The pages of a store."""

    store: Store
    dashboard: Dashboard
    offloads: Offloads
    admission: Admission

    def ask(self, method: str, target: str, body: bytes = b"", admission: Admission | None = None) -> Response:
        """One request, as it is after the guard."""
        split = urlsplit(target)
        headers = [(b"content-length", b"%d" % len(body))] if body else []
        scope = {
            "type": "http",
            "method": method,
            "path": unquote(split.path),
            "query_string": split.query.encode(),
            "headers": headers,
            "state": {"admission": admission or self.admission},
        }

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        return asyncio.run(self.dashboard.respond(Request(scope, receive)))

    def page(self, target: str, status: int = 200) -> Element:
        """A page as a document."""
        answer = self.ask("GET", target)
        assert answer.status_code == status, bytes(answer.body).decode()
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        return parsed(bytes(answer.body).decode())


@contextmanager
def site_of(path: Path, clock: Clock | None = None, settings: str = "") -> Iterator[Site]:
    """The pages of a new store at a path, with its cold tier beside it."""
    (path / "cold").mkdir()
    init_store(path / "store", Place.in_directory(path / "cold"))
    (path / "store/store.toml").write_text(settings)
    with open_store(path / "store", clock) as store:
        offloads = Offloads(store)
        with store.metadata.read() as txn:
            sessions = LoginSessions(TOKEN, txn.store.store_id, store.clock, secure=False)
        dashboard = Dashboard(Views(store, offloads), Bodies(1 << 20, 1 << 20))
        yield Site(store, dashboard, offloads, Admission(TOKEN, frozenset({"localhost"}), sessions))
        offloads.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with site_of(tmp_path) as site:
        yield site


@pytest.fixture
def sessions() -> LoginSessions:
    return LoginSessions(TOKEN, "0123456789abcdef", ManualClock(), secure=True)
