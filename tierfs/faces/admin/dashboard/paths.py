"""Paths of the dashboard: what a client needs for each, and links to them. Pure."""

from __future__ import annotations

from enum import Enum, auto
from urllib.parse import quote, unquote, urlencode

HOME, BROWSE, LEDGERS, LOGS, POLICIES, COST, WORK = "/", "/browse/", "/ledgers", "/logs", "/policies", "/cost", "/work"
LOGIN, LOGOUT = "/login", "/logout"
ASSETS = "/assets/"

_PAGES = frozenset({HOME, LEDGERS, LOGS, POLICIES, COST, WORK, BROWSE.rstrip("/")})
_FORMS = frozenset({LOGIN, LOGOUT})

# Parameter of the login page: where it leads.
TO = "to"


class Access(Enum):
    """What a client needs for a path."""

    API = auto()
    """No path of the dashboard: the token."""
    PAGE = auto()
    """The token, or the cookie of a session, which only reads."""
    FORM = auto()
    """Nothing; its form may be sent by a page of this server."""
    ASSET = auto()
    """Nothing: it is the same for everybody."""


def access_of(path: str) -> Access:
    """Return what a client needs for a decoded path."""
    if path in _FORMS:
        return Access.FORM
    if path.startswith(ASSETS):
        return Access.ASSET
    return Access.PAGE if path in _PAGES or path.startswith(BROWSE) else Access.API


def browse(name: str, **parameters: str | int) -> str:
    """Return the link to a directory or segment; a name is any text."""
    return link(BROWSE + quote(name), **parameters)


def link(path: str, **parameters: str | int) -> str:
    """Return a link with parameters."""
    return path + (f"?{urlencode(parameters)}" if parameters else "")


def login(target: bytes) -> str:
    """Return the link to the login page that leads to the target of a request afterwards."""
    return link(LOGIN, **{TO: target.decode("latin-1")})


def destination(to: str) -> str:
    """Return where the login page leads: a page of this server, else the first one."""
    path = unquote(to.partition("?")[0])  # one of ours leads to no other host, and into no other header
    is_line = to.isascii() and to.isprintable() and "#" not in to
    return to if is_line and access_of(path) is Access.PAGE else HOME
