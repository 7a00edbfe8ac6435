"""Who may see a page: the token or a session over TCP, the owner on the socket; and no page of another site."""

from __future__ import annotations

import pytest

from tests.faces.admin.dashboard.conftest import TOKEN
from tierfs.faces.admin.dashboard import paths
from tierfs.faces.admin.dashboard.sessions import LoginSessions
from tierfs.faces.admin.guard import Admission, refusal

HOST = (b"host", b"localhost:9160")
OWN, FOREIGN = (b"origin", b"http://localhost:9160"), (b"origin", b"https://evil.example")
BEARER = (b"authorization", f"Bearer {TOKEN}".encode())


@pytest.fixture
def admission(sessions: LoginSessions) -> Admission:
    return Admission(TOKEN, frozenset({"localhost"}), sessions)


def cookie(sessions: LoginSessions) -> tuple[bytes, bytes]:
    return b"cookie", sessions.begun().partition(";")[0].encode()


def status(
    admission: Admission, path: bytes, *headers: tuple[bytes, bytes], method: str = "GET", host: bool = True
) -> int | None:
    refused = refusal(admission, [*([HOST] if host else []), *headers], path, path, method)
    return None if refused is None else refused.status


def test_a_page_needs_the_token_or_a_session(admission: Admission, sessions: LoginSessions) -> None:
    for page in (
        b"/",
        b"/browse/",
        b"/browse/logs/a%23b",
        b"/ledgers",
        b"/logs",
        b"/policies",
        b"/cost",
        b"/work",
        b"/browse",
    ):
        assert status(admission, page) == 303, page
        assert status(admission, page, BEARER) is None, page
        for method, wanted in (("GET", None), ("HEAD", None), ("POST", 401), ("PUT", 401)):
            assert status(admission, page, cookie(sessions), method=method) == wanted, (page, method)


def test_a_session_opens_no_path_of_the_api(admission: Admission, sessions: LoginSessions) -> None:
    for path in (
        b"/v1/status",
        b"/v1/bytes/s",
        b"/metrics",
        b"/admin/v2/x",
        b"/browsex",
        b"/Login",
        b"/%2flogin",
        b"/.",
    ):
        assert status(admission, path, cookie(sessions)) == 401, path


def test_a_login_leads_back_to_the_page(admission: Admission) -> None:
    refused = refusal(admission, [HOST], b"/browse/a%26b", b"/browse/a%26b?after=x")
    assert refused is not None
    assert refused.headers == ((b"location", b"/login?to=%2Fbrowse%2Fa%2526b%3Fafter%3Dx"),)


def test_the_login_and_what_it_looks_like_need_nothing(admission: Admission) -> None:
    assert [status(admission, path) for path in (b"/login", b"/assets/style.css", b"/%6cogin")] == [None] * 3
    assert status(admission, b"/login", method="POST") is None


@pytest.mark.parametrize(
    ("path", "method", "headers", "wanted"),
    [
        (b"/login", "POST", [HOST, OWN], None),
        (b"/logout", "POST", [HOST, OWN], None),
        (b"/login", "POST", [HOST, FOREIGN], 403),
        (b"/logout", "POST", [HOST, FOREIGN], 403),
        (b"/login", "POST", [HOST, (b"origin", b"null")], 403),
        (b"/login", "POST", [HOST, OWN, FOREIGN], 403),
        (b"/login", "POST", [HOST, (b"origin", b"http://localhost:9161")], 403),
        (b"/login", "POST", [HOST, (b"origin", b"ftp://localhost:9160")], 403),
        (b"/login", "POST", [HOST, (b"origin", b"localhost:9160")], 403),
        (b"/login", "POST", [(b"host", b"evil.example"), (b"origin", b"http://evil.example")], 421),
        (b"/login", "GET", [HOST, OWN], 403),
        (b"/", "GET", [HOST, OWN, BEARER], 403),
        (b"/v1/append/s", "POST", [HOST, OWN, BEARER], 403),
    ],
)
def test_only_a_form_of_this_server_has_an_origin(
    admission: Admission, path: bytes, method: str, headers: list[tuple[bytes, bytes]], wanted: int | None
) -> None:
    refused = refusal(admission, headers, path, path, method)
    assert (None if refused is None else refused.status) == wanted


def test_on_the_socket_a_page_is_for_names_of_this_machine() -> None:
    for host, wanted in (
        (b"localhost:8080", None),
        (b"127.0.0.1", None),
        (b"[::1]:1", None),
        (b"tierfs", None),
        (b"evil.example", 421),
    ):
        for path in (b"/", b"/browse/a", b"/login", b"/assets/live.js"):
            assert status(Admission(), path, (b"host", host), host=False) == wanted, (host, path)


@pytest.mark.parametrize(
    ("to", "wanted"),
    [
        ("/", "/"),
        ("/browse/a%20b?after=c", "/browse/a%20b?after=c"),
        ("/work", "/work"),
        ("", "/"),
        ("//evil.example/browse/", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example/", "/"),
        ("/browse/\r\nset-cookie: a=b", "/"),
        ("/browse/ש", "/"),
        ("/v1/bytes/s", "/"),
        ("/logout", "/"),
        ("/browse/a#b", "/"),
    ],
)
def test_a_login_leads_to_no_other_server(to: str, wanted: str) -> None:
    assert paths.destination(to) == wanted
