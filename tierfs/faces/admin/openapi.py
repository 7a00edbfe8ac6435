"""The OpenAPI document of the admin API, served by it and written down in docs/openapi.json."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import tierfs

_STRING = {"type": "string"}
_OFFSET = {"type": "integer", "minimum": 0, "format": "int64"}
_FLAG = {"type": "boolean"}
_JSON = "application/json"
_BYTES = "application/octet-stream"
_OR_NULL: dict[str, Any] = {"type": ["string", "null"]}
_OBJECTS = {"type": "array", "items": {"type": "object"}}
_LIMIT = {"type": "integer", "minimum": 1, "maximum": 1000}
_SEALED = {"segment": _STRING, "length": _OFFSET}
_REQUIRED = {"truncate": ("before",), "concat": ("source",), "clone": ("target",), "rename": ("target",)}

# Answers that any operation may have, by what the caller should do.
_ERRORS = {
    400: "The request is invalid; an unchanged repeat fails too.",
    401: "TCP: the bearer token is missing or wrong.",
    403: "The process has no permission, or the request is from a web page.",
    404: "The name does not exist.",
    405: "The path does not support this method.",
    409: "A conflict: a concurrent change, a wrong offset, or a running operation. Check the state and retry.",
    421: "TCP: this server does not serve the Host of the request.",
    500: "Bytes are lost, or an internal error occurred: see the log.",
    503: "Not available now; try later.",
    507: "The disk is full.",
}

# Of operations that take a body.
_OF_BODIES = {
    413: "The body is too long, as sent or decoded.",
    415: "The Content-Encoding of the body is not gzip; Accept-Encoding lists the supported ones.",
}

# Of appends alone.
_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "pattern": '^([!#-+\\--~]{1,255}|"[ !#-\\[\\]-~]{1,255}")$'},
    "description": "Unique key of this append to this segment: a repeat with the same key does not append again.",
}

_OTHER_KEY = "The Idempotency-Key belongs to another append to the segment."
_UNCONFIRMED = "The bytes are in the segment, but not in the bucket's journal yet: continue at `end`."

# Answers of reads alone.
_OF_READS = {
    304: "The bytes match If-None-Match.",
    412: "The bytes do not match If-Match.",
    416: "The range is outside the segment.",
}


class Described(Protocol):
    """An operation, as routes have it."""

    @property
    def method(self) -> str:
        """HTTP's."""

    @property
    def path(self) -> str:
        """With `{name}` for a name."""

    @property
    def handler(self) -> str:
        """The operation's name."""

    @property
    def summary(self) -> str:
        """Its purpose, for its users."""


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": sorted(properties), "properties": properties}


def _run(**options: Any) -> dict[str, Any]:
    return _object(
        path=_STRING,
        state={"type": "string", "enum": ["not run", "running", "done", "failed"]},
        begun=_OR_NULL,
        ended=_OR_NULL,
        progress={"type": ["object", "null"]},
        result={"type": ["object", "null"]},
        error={"type": ["object", "null"]},
        **options,
    )


_OFFLOAD, _CONSOLIDATION = _run(before=_OR_NULL, metadata={"type": "object"}), _run(compress=_FLAG)

_FOLLOWED = _object(path=_STRING, streams=_OBJECTS, sources=_OBJECTS, next=_OR_NULL)

_POLICIES = _object(path=_STRING, policy={"type": "object", "additionalProperties": {"type": "object"}})

# By the name of the handler: its parameters, the status and the schema of its answer.
_ABOUT: dict[str, tuple[dict[str, Any], int, dict[str, Any] | None]] = {
    "ls": (
        {"after": _STRING, "limit": _LIMIT},
        200,
        _object(path=_STRING, names=_OBJECTS, next=_OR_NULL),
    ),
    "info": ({}, 200, {"type": "object"}),
    "map": ({}, 200, {"type": "object"}),
    "read": ({"read_priority": _STRING}, 200, None),
    "append": ({"expect_offset": _OFFSET, "seal": _FLAG}, 200, _object(segment=_STRING, start=_OFFSET, end=_OFFSET)),
    "followed": ({"after": _STRING, "limit": _LIMIT}, 200, _FOLLOWED),
    "follow": (
        {},
        200,
        _object(begun_ms={"type": ["integer", "null"]}, appends=_OBJECTS, places={"type": "object"}),
    ),
    "seal": ({}, 200, _object(**_SEALED, already_sealed=_FLAG)),
    "unseal": ({}, 200, _object(**_SEALED, already_open=_FLAG)),
    "truncate": ({"before": _OFFSET}, 200, {"type": "object"}),
    "concat": ({"source": _STRING}, 200, {"type": "object"}),
    "clone": (
        {"target": _STRING, "to": _OFFSET},
        200,
        _object(source=_STRING, target=_STRING, start=_OFFSET, end=_OFFSET, chunks=_OFFSET, successor=_OR_NULL),
    ),
    "rename": ({"target": _STRING}, 200, _object(source=_STRING, target=_STRING, segments=_OFFSET)),
    "delete": ({"recursive": _FLAG, "now": _FLAG}, 200, {"type": "object"}),
    "make_directory": ({}, 201, _object(path=_STRING)),
    "offload": ({"before": _STRING, "metadata": _STRING}, 202, _OFFLOAD),
    "offload_status": ({}, 200, _OFFLOAD),
    "consolidate": ({"compress": _FLAG}, 202, _CONSOLIDATION),
    "consolidate_status": ({}, 200, _CONSOLIDATION),
    "policy": ({}, 200, _POLICIES),
    "set_policy": ({}, 200, _POLICIES),
    "status": ({}, 200, {"type": "object"}),
    "failures": ({}, 200, _object(failures=_OBJECTS)),
    "health": ({}, 200, _object(store_id=_STRING, healthy=_FLAG)),
    "ready": ({}, 200, _object(ready=_FLAG, why={"type": "array", "items": _STRING})),
    "metrics": ({}, 200, None),
}

_ERROR = _object(error=_STRING, message=_STRING, remedy=_OR_NULL)
_ERROR["properties"].update(actual_length=_OFFSET, end=_OFFSET)


def document(operations: Iterable[Described]) -> dict[str, Any]:
    """Return the document as data."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "tierfs admin API", "version": tierfs.__version__},
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(operation: Described) -> dict[str, Any]:
    parameters, status, schema = _ABOUT[operation.handler]
    required = _REQUIRED.get(operation.handler, ())
    described: list[dict[str, Any]] = [
        {"name": name, "in": "query", "required": name in required, "schema": kind} for name, kind in parameters.items()
    ]
    if "{name}" in operation.path:
        what = "The name of a segment or directory, with slashes as / or as %2F."
        schema_of_name = {"type": "string", "minLength": 1}
        described.append(
            {"name": "name", "in": "path", "required": True, "schema": schema_of_name, "description": what}
        )
    errors = _ERRORS | (_OF_BODIES if operation.handler in ("append", "follow", "set_policy") else {})
    errors |= {422: _OTHER_KEY, 504: _UNCONFIRMED} if operation.handler == "append" else {}
    answers: dict[str, Any] = {
        str(code): {"description": text, "content": {_JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}}
        for code, text in errors.items()
    }
    answers[str(status)] = {
        "description": operation.summary,
        **({} if schema is None else {"content": {_JSON: {"schema": schema}}}),
    }
    if operation.handler == "read":
        answers["200"]["content"] = {_BYTES: {}}
        answers["206"] = {"description": "The range.", "content": {_BYTES: {}}}
        for code, text in _OF_READS.items():
            answers[str(code)] = {"description": text}
    if operation.handler == "ready":
        answers["503"] = {"description": "Not ready; `why` lists the reasons.", "content": {_JSON: {"schema": schema}}}
    if operation.handler == "metrics":
        answers["200"]["content"] = {"text/plain": {}}
    data: dict[str, Any] = {
        "operationId": operation.handler,
        "summary": operation.summary,
        "parameters": described,
        "responses": dict(sorted(answers.items())),
    }
    if operation.handler == "append":
        described.append(_KEY)
    if operation.handler in ("append", "follow"):
        data["requestBody"] = {
            "required": True,
            "content": {_BYTES: {"schema": {"type": "string", "format": "binary"}}},
        }
    if operation.handler == "set_policy":
        value = {"type": ["string", "integer", "boolean", "null"]}
        schema_of_body = {"type": "object", "additionalProperties": value}
        data["requestBody"] = {"required": True, "content": {_JSON: {"schema": schema_of_body}}}
    return data
