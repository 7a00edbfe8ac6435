"""Routes: which handler answers which method of which path, and the application around them."""

from __future__ import annotations

import inspect

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import unexpected
from tierfs.base.words.names import printable
from tierfs.faces.admin import openapi
from tierfs.faces.admin.answers import answer, error_answer, refused
from tierfs.faces.admin.dashboard.pages import Dashboard
from tierfs.faces.admin.dashboard.paths import Access, access_of
from tierfs.faces.admin.guard import guarded
from tierfs.faces.admin.pulsar import served as pulsar
from tierfs.faces.admin.pulsar.served import PulsarResources
from tierfs.faces.admin.resources import Handler, Resources

VERSION = "v1"
OPENAPI_PATH = f"/{VERSION}/openapi.json"
_NAME = "/{name}"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: a method of a path, and the handler of Resources that answers it."""

    method: str
    path: str
    """`{name}` stands for the name of a segment or directory, with its slashes."""
    handler: str

    @property
    def summary(self) -> str:
        """Its purpose: the first paragraph of the handler's docstring, without errors."""
        text = inspect.getdoc(getattr(Resources, self.handler)) or ""
        return text.partition("\n\n")[0].partition(" Raises ")[0]


OPERATIONS = (
    Operation("GET", f"/{VERSION}/ls/{{name}}", "ls"),
    Operation("GET", f"/{VERSION}/info/{{name}}", "info"),
    Operation("GET", f"/{VERSION}/map/{{name}}", "map"),
    Operation("GET", f"/{VERSION}/bytes/{{name}}", "read"),
    Operation("POST", f"/{VERSION}/append/{{name}}", "append"),
    Operation("GET", f"/{VERSION}/followed/{{name}}", "followed"),
    Operation("POST", f"/{VERSION}/follow/{{name}}", "follow"),
    Operation("POST", f"/{VERSION}/seal/{{name}}", "seal"),
    Operation("POST", f"/{VERSION}/unseal/{{name}}", "unseal"),
    Operation("POST", f"/{VERSION}/truncate/{{name}}", "truncate"),
    Operation("POST", f"/{VERSION}/concat/{{name}}", "concat"),
    Operation("POST", f"/{VERSION}/clone/{{name}}", "clone"),
    Operation("POST", f"/{VERSION}/mv/{{name}}", "rename"),
    Operation("POST", f"/{VERSION}/rm/{{name}}", "delete"),
    Operation("POST", f"/{VERSION}/mkdir/{{name}}", "make_directory"),
    Operation("POST", f"/{VERSION}/offload/{{name}}", "offload"),
    Operation("GET", f"/{VERSION}/offload/{{name}}", "offload_status"),
    Operation("POST", f"/{VERSION}/consolidate/{{name}}", "consolidate"),
    Operation("GET", f"/{VERSION}/consolidate/{{name}}", "consolidate_status"),
    Operation("GET", f"/{VERSION}/policy/{{name}}", "policy"),
    Operation("PATCH", f"/{VERSION}/policy/{{name}}", "set_policy"),
    Operation("GET", f"/{VERSION}/status", "status"),
    Operation("GET", f"/{VERSION}/failures", "failures"),
    Operation("GET", f"/{VERSION}/health", "health"),
    Operation("GET", f"/{VERSION}/ready", "ready"),
    Operation("GET", "/metrics", "metrics"),
)


def application(resources: Resources, for_pulsar: PulsarResources, dashboard: Dashboard) -> ASGIApp:
    """Return the application, behind the guard.

    Starlette has the requests and the answers. Its router and its layers around a handler take as long as everything
    else of a small append (docs/design/0048-the-admin-api.md), for a table of twenty rows.
    """
    document = openapi.document(OPERATIONS)

    async def described(request: Request) -> Response:
        return answer(document)

    table: dict[str, dict[str, Handler]] = {OPENAPI_PATH: {"GET": described}}
    for operation in OPERATIONS:
        table.setdefault(operation.path, {})[operation.method] = getattr(resources, operation.handler)
    for methods in table.values():
        if "GET" in methods:
            methods["HEAD"] = methods["GET"]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        methods, name = _resolved(table, scope["path"])
        handler = methods.get(scope["method"])
        if scope["path"].startswith(pulsar.PREFIX):
            response = await for_pulsar.respond(Request(scope, receive))
        elif access_of(scope["path"]) is not Access.API:
            response = await dashboard.respond(Request(scope, receive))
        elif handler is None:
            response = _unknown(scope["method"], methods)
        else:
            scope["path_params"] = {"name": name}
            try:
                response = await handler(Request(scope, receive))
            except Exception as exc:
                what = f"{scope['method']} {printable(scope['path'])}"
                response = error_answer(unexpected(exc, what))
        await response(scope, receive, send)

    return guarded(app, refused)


def _resolved(table: dict[str, dict[str, Handler]], path: str) -> tuple[dict[str, Handler], str]:
    """Return the methods of a path, and the name in it; none for a path that is not there."""
    methods = table.get(path)
    if methods is not None:
        return methods, ""
    _, version, verb, name = (*path.split("/", 3), "", "", "")[:4]
    return table.get(f"/{version}/{verb}{_NAME}", {}), name


def _unknown(method: str, methods: dict[str, Handler]) -> Response:
    if methods:
        data = {
            "error": "InvalidRequest",
            "message": f"this path does not support {method}",
            "remedy": f"see {OPENAPI_PATH}",
        }
        return answer(data, 405, {"allow": ", ".join(sorted(methods))})
    data = {"error": "NotFound", "message": "unknown path", "remedy": f"see {OPENAPI_PATH}"}
    return answer(data, 404)
