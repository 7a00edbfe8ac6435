"""Pages: answer the requests of browsers. Each page is rendered whole; the script asks for the same page again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response

from tierfs.base.system.extras import MissingPackage
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest, NotFound, TierfsError, unexpected
from tierfs.base.words.names import printable
from tierfs.faces.admin.answers import Refused, error_answer, name_after, number, only, parameter, status_of
from tierfs.faces.admin.bodies import Bodies
from tierfs.faces.admin.dashboard import paths, rendering
from tierfs.faces.admin.dashboard.sessions import LoginSessions
from tierfs.faces.admin.dashboard.views import Views

# Pages that are made at once. They wait for mounts, and must not keep the threads of the API (a guess).
_THREADS = 2

# A token, and where the page leads.
_FORM_BYTES = 4096

_READS = ("GET", "HEAD")
_SEE_OTHER = 303

Work = Callable[[], Response]


class Dashboard:
    """The pages of one store."""

    def __init__(self, views: Views, bodies: Bodies) -> None:
        self._views = views
        self._bodies = bodies
        self._threads = CapacityLimiter(_THREADS)
        self._pages: dict[str, Callable[[Request], Callable[[], tuple[str, dict[str, Any]]]]] = {
            paths.HOME: self._overview,
            paths.LEDGERS: self._ledgers,
            paths.LOGS: self._logs,
            paths.POLICIES: self._policies,
            paths.COST: self._cost,
            paths.WORK: self._work,
        }

    async def respond(self, request: Request) -> Response:
        """Answer a request whose path is one of the dashboard. Raises nothing."""
        path: str = request.scope["path"]
        try:
            if path in (paths.LOGIN, paths.LOGOUT):
                return await self._form(request)
            if request.method not in _READS:
                raise Refused(405, f"this path does not support {request.method}", headers={"allow": "GET, HEAD"})
            if path.startswith(paths.ASSETS):
                return rendering.asset(path) or error_answer(NotFound("unknown path"))
            return await self._in_thread(self._page(request))
        except Exception as exc:
            error = unexpected(exc, f"{request.method} {printable(path)}")
            return await self._in_thread(partial(_failed, request, error))

    def _page(self, request: Request) -> Work:
        """Return what renders a page. Raises InvalidRequest for other parameters than the page's own."""
        read = self._pages.get(request.scope["path"], self._browse)(request)
        logged_in = sessions_of(request) is not None

        def work() -> Response:
            template, shown = read()
            frame = self._views.frame()
            return rendering.page(template, path_shown=request.scope["path"], logged_in=logged_in, **frame, **shown)

        return work

    def _overview(self, request: Request) -> Callable[[], tuple[str, dict[str, Any]]]:
        only(request)
        return lambda: ("overview.html", self._views.overview())

    def _ledgers(self, request: Request) -> Callable[[], tuple[str, dict[str, Any]]]:
        only(request, "after")
        after = number(request, "after") or 0
        return lambda: ("ledgers.html", self._views.ledgers(after))

    def _logs(self, request: Request) -> Callable[[], tuple[str, dict[str, Any]]]:
        only(request, "after")
        after = parameter(request, "after") or ""
        return lambda: ("logs.html", self._views.logs(after))

    def _policies(self, request: Request) -> Callable[[], tuple[str, dict[str, Any]]]:
        only(request, "after")
        after = number(request, "after") or 0
        return lambda: ("policies.html", self._views.policies(after))

    def _cost(self, request: Request) -> Callable[[], tuple[str, dict[str, Any]]]:
        only(request)
        return lambda: ("cost.html", self._views.cost())

    def _work(self, request: Request) -> Callable[[], tuple[str, dict[str, Any]]]:
        only(request, "after")
        after = number(request, "after") or 0
        return lambda: ("work.html", self._views.work(after))

    def _browse(self, request: Request) -> Callable[[], tuple[str, dict[str, Any]]]:
        only(request, "after", "local", "cold")
        path = names.join(names.split(request.scope["path"].removeprefix(paths.BROWSE.rstrip("/"))))
        after = name_after(request, "after")
        local_from, cold_from = number(request, "local") or 0, number(request, "cold") or 0
        return lambda: self._views.browse(path, after, local_from, cold_from)

    async def _form(self, request: Request) -> Response:
        """Answer the two forms: show the one of the login, begin a session, end one."""
        sessions = sessions_of(request)
        if sessions is None:  # on the socket the kernel says who it is
            return _redirect(paths.HOME)
        if request.method in _READS and request.scope["path"] == paths.LOGIN:
            only(request, paths.TO)
            to = paths.destination(parameter(request, paths.TO) or "")
            return await self._in_thread(partial(_login_page, to))
        if request.method != "POST":
            raise Refused(405, f"this path does not support {request.method}", headers={"allow": "GET, HEAD, POST"})
        if request.scope["path"] == paths.LOGOUT:
            return _redirect(paths.LOGIN, sessions.ended())
        body = await self._bodies.read(request, _FORM_BYTES)
        self._bodies.free(len(body))
        given = _fields_of(body)
        to = paths.destination(given.get(paths.TO, ""))
        if not sessions.is_token(given.get("token", "")):
            return await self._in_thread(partial(_login_page, to, failed=True))
        return _redirect(to, sessions.begun())

    async def _in_thread(self, work: Work) -> Response:
        return await to_thread.run_sync(work, limiter=self._threads)


def sessions_of(request: Request) -> LoginSessions | None:
    """Return the sessions of the listener of a request; None on the socket, which needs none."""
    sessions: LoginSessions | None = request.scope["state"]["admission"].sessions
    return sessions


def _login_page(to: str, *, failed: bool = False) -> Response:
    return rendering.page("login.html", 403 if failed else 200, to=to, failed=failed)


def _redirect(to: str, cookie: str | None = None) -> Response:
    headers = {"location": to, **rendering.HEADERS, **({} if cookie is None else {"set-cookie": cookie})}
    return Response(status_code=_SEE_OTHER, headers=headers)


def _fields_of(body: bytearray) -> dict[str, str]:
    """Return the fields of a form that are given once. Raises InvalidRequest for a body that is no form."""
    try:
        fields = parse_qs(body.decode("ascii"), max_num_fields=2, strict_parsing=True, errors="strict")
    except ValueError as exc:
        raise InvalidRequest("the body is not a form with a token") from exc
    return {name: values[0] for name, values in fields.items() if len(values) == 1}


def _failed(request: Request, error: TierfsError) -> Response:
    """Return an error as a page; as data where the pages themselves cannot be made."""
    try:
        return rendering.error_page(error, status_of(error))
    except MissingPackage as exc:
        return error_answer(exc, 501)
