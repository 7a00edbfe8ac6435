"""The paths of Pulsar's admin API that are served, by its methods, and with its answers to errors."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from tierfs.app import verbs
from tierfs.app.store import Store
from tierfs.base.options import policy
from tierfs.base.options.policy import OFF, Value
from tierfs.base.options.precedence import Policies
from tierfs.base.words.errors import InvalidRequest, NoColdTier, unexpected
from tierfs.base.words.names import printable
from tierfs.engine.metadata import directories, policies
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments.positions import EARLIEST
from tierfs.faces.admin.answers import Refused, answer, error_answer, flag, only, status_of
from tierfs.faces.admin.bodies import Bodies
from tierfs.faces.admin.offloads import Offloads
from tierfs.faces.admin.pulsar import offload_policies, retention, topics
from tierfs.faces.admin.pulsar.offload_policies import LAG, POLICY, SIZE, TIME, OffloadPlace

PREFIX = "/admin/v2/"

# A directory as the names in a path say it, for a snapshot. Raises NotFound, InvalidRequest.
Find = Callable[[ReadTransaction], str]

_Handler = Callable[["PulsarResources", Request, Find], Awaitable[Response]]

# Policies and message ids.
_BODY_BYTES = 64 * 1024

# A broker's answer to policies that it refuses (AdminResource.validateOffloadPolicies).
_PRECONDITION_FAILED = 412

_NOT_ALLOWED = 405
_NOT_IMPLEMENTED = 501
_NAMESPACES, _TOPICS = "namespaces", "persistent"
_NOT_POLICIES = ("partitions", "internalStats", "offload", "terminate")

_SERVED = (
    "supported: topics offload, offload-status, stats-internal, terminate, namespaces offload-threshold, "
    "offload-deletion-lag, and offload-policies and retention of both; tierfs has verbs of its own for the rest"
)


class PulsarResources:
    """Answers for Pulsar's admin client, over the store's own verbs."""

    def __init__(
        self,
        store: Store,
        offloads: Offloads,
        bodies: Bodies,
        in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self._store = store
        self._offloads = offloads
        self._bodies = bodies
        self._in_thread = in_thread

    async def respond(self, request: Request) -> Response:
        """Answer a request below /admin/v2; errors have Pulsar's `reason` besides ours."""
        method = "GET" if request.method == "HEAD" else request.method
        kind, names, what = _parts(request.scope["raw_path"])
        methods = _TABLE.get((kind, what))
        if methods is None:
            return _refused(_NOT_IMPLEMENTED, f"{_shown(request)} is not served by tierfs", _SERVED)
        handler = methods.get(method)
        if handler is None:
            return _refused(_NOT_ALLOWED, f"this path does not support {method}", f"supported: {', '.join(methods)}")
        find = topics.topic_of if kind == _TOPICS else topics.namespace_of
        root = self._store.settings.admin.pulsar_root
        try:
            return await handler(self, request, lambda txn: find(txn, root, *names))
        except Exception as exc:
            error = unexpected(exc, _shown(request))
            status = status_of(error)
            # 409 says of an offload that another one runs, and is waited for.
            is_policy = isinstance(error, InvalidRequest) and what not in _NOT_POLICIES
            if isinstance(error, NoColdTier) or (is_policy and not isinstance(error, Refused)):
                status = _PRECONDITION_FAILED
            return error_answer(error, status, reason=_reason(str(error), error.remedy))

    async def partitions(self, request: Request, find: Find) -> Response:
        """Tell that a topic has no partitions: each is a topic of its own here, as `topic-partition-0`."""
        only(request, "authoritative", "checkAllowAutoCreation")
        await self._in_thread(partial(self._path, find))
        return answer({"partitions": 0})

    async def internal_stats(self, request: Request, find: Find) -> Response:
        """Tell the ledgers of a topic."""
        only(request, "authoritative", "metadata")
        metadata, held = flag(request, "metadata"), self._store.is_held

        def told() -> dict[str, Any]:
            with self._store.metadata.read() as txn:
                return topics.internal_stats(txn, find(txn), held=held, metadata=metadata)

        return answer(await self._in_thread(told))

    async def offload(self, request: Request, find: Find) -> Response:
        """Begin to offload the closed ledgers of a topic before a message, and answer at once."""
        only(request, "authoritative")
        before = topics.position_of(await self._body(request))

        def begin() -> None:
            self._offloads.begin(self._path(find), str(before))

        await self._in_thread(begin)
        return _nothing()

    async def offload_status(self, request: Request, find: Find) -> Response:
        """Tell how the last offload of a topic stands."""
        only(request, "authoritative")
        path = await self._in_thread(partial(self._path, find))
        return answer(topics.offload_status(self._offloads.of(path)))

    async def policies(self, request: Request, find: Find) -> Response:
        """Tell the offload policies that are set at a place, or with `applied` those in force there."""
        only(request, "authoritative", "applied", "isGlobal")
        _refuse_global(request)
        applied = flag(request, "applied")

        def told() -> dict[str, Any] | None:
            with self._store.metadata.read() as txn:
                path = find(txn)
                values = _in_force(txn, path) if applied else _own(txn, path)
                return offload_policies.fields(values, self._place(txn))

        return _or_nothing(await self._in_thread(told))

    async def set_policies(self, request: Request, find: Find) -> Response:
        """Replace the offload policies at a place. Raises InvalidRequest for a field that tierfs cannot keep."""
        only(request, "authoritative", "isGlobal")
        _refuse_global(request)
        given = await self._body(request)
        if not isinstance(given, dict):
            raise InvalidRequest("the body is not an object of offload policies")

        def work() -> None:
            with self._store.metadata.read() as txn:
                path = find(txn)
                wanted = offload_policies.wanted(given, self._place(txn))
                unset = offload_policies.unset(wanted)
                wanted |= _without_at_once(policies.at(txn, path), path, wanted, unset)
            verbs.change_policies(self._store, path, wanted, [key for key in unset if key not in wanted])

        await self._in_thread(work)
        return _nothing()

    async def remove_policies(self, request: Request, find: Find) -> Response:
        """Remove the offload policies at a place: those above hold again."""
        only(request, "authoritative", "isGlobal")
        _refuse_global(request)
        await self._in_thread(partial(self._unset, find, [*POLICY.values()]))
        return _nothing()

    async def policy(self, name: str, request: Request, find: Find) -> Response:
        """Tell one policy that is set at a place."""
        only(request)

        def told() -> int | str | None:
            with self._store.metadata.read() as txn:
                own = _own(txn, find(txn))
            if POLICY[name] in own:
                return offload_policies.field(name, own[POLICY[name]])
            # A broker has -1 for a threshold that is not set, and nothing for the lag.
            return None if name == LAG else -1

        return _or_nothing(await self._in_thread(told))

    async def set_policy(self, name: str, request: Request, find: Find) -> Response:
        """Set one policy at a place; a negative number switches it off."""
        only(request)
        given = await self._body(request)

        def work() -> None:
            wanted = {POLICY[name]: offload_policies.stored(name, given)}
            with self._store.metadata.read() as txn:
                path = find(txn)
                wanted |= _without_at_once(policies.at(txn, path), path, wanted, ())
            verbs.change_policies(self._store, path, wanted)

        await self._in_thread(work)
        return _nothing()

    async def remove_policy(self, name: str, request: Request, find: Find) -> Response:
        """Remove one policy at a place."""
        only(request)
        await self._in_thread(partial(self._unset, find, [POLICY[name]]))
        return _nothing()

    async def retention(self, request: Request, find: Find) -> Response:
        """Tell the retention that is set at a place, or with `applied` the one in force there."""
        only(request, "authoritative", "applied", "isGlobal")
        _refuse_global(request)
        applied = flag(request, "applied")

        def told() -> dict[str, int] | None:
            with self._store.metadata.read() as txn:
                path = find(txn)
                return retention.fields(_in_force(txn, path) if applied else _own(txn, path))

        return _or_nothing(await self._in_thread(told))

    async def set_retention(self, request: Request, find: Find) -> Response:
        """Set both limits of a retention at a place."""
        only(request, "authoritative", "isGlobal")
        _refuse_global(request)
        wanted = retention.wanted(await self._body(request))
        await self._in_thread(lambda: verbs.change_policies(self._store, self._path(find), wanted))
        return _nothing()

    async def remove_retention(self, request: Request, find: Find) -> Response:
        """Remove the retention at a place: those above hold again."""
        only(request, "authoritative", "isGlobal")
        _refuse_global(request)
        await self._in_thread(partial(self._unset, find, [retention.AGE, retention.SIZE]))
        return _nothing()

    async def terminate(self, request: Request, find: Find) -> Response:
        """Close all ledgers of a topic for good, and tell its last message. Idempotent."""
        only(request, "authoritative")
        last = await self._in_thread(lambda: self._store.engine.terminate_managed_ledger(self._path(find)))
        return answer(topics.message_id(last or EARLIEST))

    def _unset(self, find: Find, keys: list[str]) -> None:
        verbs.change_policies(self._store, self._path(find), {}, keys)

    def _path(self, find: Find) -> str:
        with self._store.metadata.read() as txn:
            return find(txn)

    def _place(self, txn: ReadTransaction) -> OffloadPlace:
        location_id = txn.store.cold_location_id
        location = policies.location(txn, location_id) if location_id else None
        return OffloadPlace.of(location, self._store.settings.offload.ledger_block_bytes)

    async def _body(self, request: Request) -> Any:
        body = await self._bodies.read(request, _BODY_BYTES)
        self._bodies.free(len(body))
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as exc:
            raise InvalidRequest("the body is not JSON") from exc


def _own(txn: ReadTransaction, path: str) -> dict[str, Value]:
    """Return the policies that are set at a path itself, also where a setting of the host overrides them."""
    stored = policies.settings_of(txn, directories.must_find(txn, path).id)
    return {key: policy.from_stored(key, text) for key, text in stored.items()}


def _in_force(txn: ReadTransaction, path: str) -> dict[str, Value]:
    return {key: held.value for key, held in policies.at(txn, path).all()}


def _without_at_once(held: Policies, path: str, wanted: Mapping[str, str], unset: Collection[str]) -> dict[str, str]:
    """Return what keeps a threshold of size from being idle: `offload_after` off where all is offloaded at once.

    A broker offloads nothing by time unless it is told to. `held` are the policies before `wanted` is set.
    """
    size, time = POLICY[SIZE], POLICY[TIME]
    if wanted.get(size, OFF) == OFF or time in wanted:
        return {}
    left = held if time not in unset else Policies(tuple(level for level in held.levels if level.origin.name != path))
    return {time: OFF} if left.values.offload_after_s == 0 else {}


def _parts(raw_path: bytes) -> tuple[str, tuple[str, ...], str]:
    """Return what a path is of, the names in it, and what it asks for; a topic's name stays encoded."""
    kind, *rest = raw_path.decode("ascii").removeprefix(PREFIX).split("/")
    if kind == _NAMESPACES and len(rest) == 3 and all(rest):
        return kind, (unquote(rest[0]), unquote(rest[1])), rest[2]
    if kind == _TOPICS and len(rest) == 4 and all(rest):
        return kind, (unquote(rest[0]), unquote(rest[1]), rest[2]), rest[3]
    return "", (), ""


def _refuse_global(request: Request) -> None:
    if flag(request, "isGlobal"):
        raise InvalidRequest("--global is not supported: a store has no other clusters", remedy="omit --global")


def _shown(request: Request) -> str:
    return f"{request.method} {printable(request.scope['path'])}"


def _nothing() -> Response:
    return Response(status_code=204)


def _or_nothing(data: Any) -> Response:
    """Return data, or what a broker answers for none: its client shows null then."""
    return _nothing() if data is None else answer(data)


def _reason(message: str, remedy: str | None) -> str:
    """Return what Pulsar's client shows of an error."""
    return message if remedy is None else f"{message}; {remedy}"


def _refused(status: int, message: str, remedy: str) -> Response:
    return error_answer(InvalidRequest(message, remedy=remedy), status, reason=_reason(message, remedy))


_R = PulsarResources


def _policy(name: str) -> dict[str, _Handler]:
    """Return the handlers of one policy of a namespace."""

    def bound(handler: Callable[..., Awaitable[Response]]) -> _Handler:
        return lambda self, request, find: handler(self, name, request, find)

    return {"GET": bound(_R.policy), "PUT": bound(_R.set_policy), "DELETE": bound(_R.remove_policy)}


_RETENTION: Mapping[str, _Handler] = {
    "GET": _R.retention,
    "POST": _R.set_retention,
    "DELETE": _R.remove_retention,
}

_TABLE: Mapping[tuple[str, str], Mapping[str, _Handler]] = {
    (_TOPICS, "partitions"): {"GET": _R.partitions},
    (_TOPICS, "internalStats"): {"GET": _R.internal_stats},
    (_TOPICS, "offload"): {"GET": _R.offload_status, "PUT": _R.offload},
    (_TOPICS, "offloadPolicies"): {"GET": _R.policies, "POST": _R.set_policies, "DELETE": _R.remove_policies},
    (_TOPICS, "retention"): _RETENTION,
    (_TOPICS, "terminate"): {"POST": _R.terminate},
    (_NAMESPACES, "retention"): _RETENTION,
    (_NAMESPACES, "offloadPolicies"): {"GET": _R.policies, "POST": _R.set_policies},
    (_NAMESPACES, "removeOffloadPolicies"): {"DELETE": _R.remove_policies},
    (_NAMESPACES, "offloadThreshold"): _policy(SIZE),
    (_NAMESPACES, "offloadThresholdInSeconds"): _policy(TIME),
    (_NAMESPACES, "offloadDeletionLagMs"): _policy(LAG),
}
