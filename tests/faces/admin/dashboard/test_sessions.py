"""Sessions: a cookie opens pages for its time, with the token that made it, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from http.cookies import SimpleCookie

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.faces.admin.dashboard.conftest import TOKEN
from tierfs.faces.admin.dashboard.sessions import SESSION_S, LoginSessions

HOUR_MS = 3_600_000


def cookie_of(sessions: LoginSessions) -> bytes:
    """The header with which a browser answers."""
    return sessions.begun().partition(";")[0].encode()


def test_a_session_is_open_for_its_time(sessions: LoginSessions) -> None:
    cookie = cookie_of(sessions)
    clock = sessions.clock
    assert isinstance(clock, ManualClock)
    assert sessions.is_open([cookie])
    assert sessions.is_open([b"other=1; " + cookie + b"; more=2"])
    assert sessions.is_open([b"other=1", cookie])
    clock.advance(SESSION_S - 1)
    assert sessions.is_open([cookie])
    clock.advance(1)
    assert not sessions.is_open([cookie])


def test_no_cookie_but_one_that_the_token_signed_opens_a_page(sessions: LoginSessions) -> None:
    name, _, value = cookie_of(sessions).partition(b"=")
    expires, _, signature = value.partition(b".")
    later = b"%d" % (int(expires) + 1)
    wrong = [
        b"",
        b"=",
        name,
        name + b"=",
        name + b"=" + TOKEN.encode(),
        name + b"=" + expires,
        name + b"=" + expires + b".",
        name + b"=" + later + b"." + signature,
        name + b"=0" + expires + b"." + signature,
        name + b"=" + expires + b"." + signature[:-1],
        name + b"=" + expires + b".\xff\xfe",
        b"other=" + value,
        b"x" + name + b"=" + value,
    ]
    assert not [cookie for cookie in wrong if sessions.is_open([cookie])]
    assert not sessions.is_open([])
    for others in (
        replace(sessions, token="another-token-of-the-same-store"),
        replace(sessions, store_id="01234567ffffffff"),
    ):
        assert not others.is_open([name + b"=" + value])


def test_a_session_of_a_clock_that_was_ahead_does_not_last(sessions: LoginSessions) -> None:
    cookie = cookie_of(sessions)
    behind = replace(sessions, clock=ManualClock(sessions.clock.now_ms() - HOUR_MS))
    assert not behind.is_open([cookie])


@pytest.mark.parametrize("secure", [True, False])
def test_no_script_and_no_other_site_has_the_cookie(sessions: LoginSessions, *, secure: bool) -> None:
    sessions = replace(sessions, secure=secure)
    made: SimpleCookie = SimpleCookie(sessions.begun())
    ((name, cookie),) = made.items()
    assert name == ("__Host-tierfs-01234567" if secure else "tierfs-01234567")
    kept = {key: cookie[key] for key in ("httponly", "samesite", "path", "domain", "max-age")}
    assert kept == {"httponly": True, "samesite": "Strict", "path": "/", "domain": "", "max-age": str(SESSION_S)}
    assert bool(cookie["secure"]) is secure
    assert TOKEN not in sessions.begun()
    assert SimpleCookie(sessions.ended())[name]["max-age"] == "0"


def test_the_token_is_compared_as_a_whole(sessions: LoginSessions) -> None:
    assert sessions.is_token(f" {TOKEN}\n"), "as it is copied from its file"
    assert not [text for text in ("", TOKEN[:-1], f"{TOKEN}x", TOKEN.upper(), "\udcff") if sessions.is_token(text)]
