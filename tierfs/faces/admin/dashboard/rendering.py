"""Rendering: pages from templates, in which every text is printable and escaped, with headers that let nothing else in.

jinja2 is imported with the first page: the API does without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from tierfs.base.system import extras
from tierfs.base.words import texts, units
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.names import printable
from tierfs.faces.admin.dashboard import paths

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent
_TEMPLATES, _ASSETS = _HERE / "templates", _HERE / "assets"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

# Nothing but what this server has: no inline script or style, no other host, no frame around a page.
_POLICY = "; ".join(
    [
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ]
)

HEADERS = {
    "content-security-policy": _POLICY,
    # Links lead to this server only. Not no-referrer: the Origin of a form would be null.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def page(template: str, status: int = 200, **shown: Any) -> Response:
    """Return a page. Raises MissingPackage without jinja2."""
    return Response(render(template, **shown), status, HEADERS, "text/html")


def render(template: str, **shown: Any) -> str:
    """Return the HTML of a page."""
    return environment().get_template(template).render(shown)


def error_page(error: TierfsError, status: int, **shown: Any) -> Response:
    """Return an error as a page: what failed, and what to do."""
    return page("error.html", status, error=error, **shown)


def asset(path: str) -> Response | None:
    """Return a file of the pages; None for any other path."""
    file = _assets().get(path.removeprefix(paths.ASSETS))
    return None if file is None else Response(file[0], 200, HEADERS, file[1])


@cache
def _assets() -> Mapping[str, tuple[bytes, str]]:
    return {file.name: (file.read_bytes(), _TYPES[file.suffix]) for file in _ASSETS.iterdir() if file.suffix in _TYPES}


@cache
def environment() -> Environment:
    """Return the templates, which are read once. Raises MissingPackage without jinja2."""
    with extras.needed_by("the dashboard", "admin"):
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    made = Environment(
        autoescape=True,
        finalize=_shown,
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"size": units.size, "time": texts.clock_time, "duration": texts.duration, "number": "{:,}".format}
    made.filters |= {"run": texts.run, "stored": units.format_by_name}
    made.globals |= {"count": units.count, "browse": paths.browse, "link": paths.link, "paths": paths}
    return made


def _shown(value: Any) -> Any:
    """Return a value as a page shows it: characters of names that move a cursor or turn text around are written out."""
    return printable(value) if type(value) is str else value
