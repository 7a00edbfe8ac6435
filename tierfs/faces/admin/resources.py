"""Resources: a handler for each verb, over the Python face, as commands are over the same functions."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response

from tierfs.app import describe, verbs
from tierfs.app import store as app
from tierfs.app.follow import messages
from tierfs.app.health import health_of
from tierfs.base.options import policy as policy_text
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.json_data import fields
from tierfs.base.words.types import EntryKind
from tierfs.engine.metadata import directories, policies
from tierfs.engine.segments import stat
from tierfs.faces.admin.answers import answer, flag, idempotency_key, name_after, number, only, parameter
from tierfs.faces.admin.appends import Appends
from tierfs.faces.admin.bodies import Bodies
from tierfs.faces.admin.consolidations import Consolidations
from tierfs.faces.admin.following import Following
from tierfs.faces.admin.offloads import Offloads
from tierfs.faces.admin.reads import read_segment
from tierfs.faces.python.store import Store
from tierfs.upkeep.holder import lock
from tierfs.upkeep.holder.samples import samples_of

T = TypeVar("T")

Handler = Callable[[Request], Awaitable[Response]]

# Threads for verbs that wait for a disk or a bucket; appends have one of their own.
_THREADS = 8

# Names of one page of a listing.
MOST_NAMES = 1000

# Of an append that an earlier request has made (as Stripe's API).
_REPLAYED = {"idempotent-replayed": "true"}

# Bodies that are not appended: policies.
_SMALL_BYTES = 64 * 1024


class Resources:
    """The handlers of one open store. Each takes a request and answers it, or raises the error that is the answer."""

    def __init__(
        self,
        face: Store,
        store: app.Store,
        appends: Appends,
        offloads: Offloads,
        consolidations: Consolidations,
        bodies: Bodies,
    ) -> None:
        self._face = face
        self._store = store
        self._appends = appends
        self._offloads = offloads
        self._consolidations = consolidations
        self._bodies = bodies
        self._following = Following(store, appends)
        self._threads = CapacityLimiter(_THREADS)
        self._begun_s = self._store.clock.monotonic_s()

    async def ls(self, request: Request) -> Response:
        """List a directory, `limit` names after the name `after`; for a segment, only its own name."""
        only(request, "after", "limit")
        path, after = _name(request), name_after(request, "after")
        limit = number(request, "limit", MOST_NAMES) or MOST_NAMES

        def page() -> dict[str, Any]:
            with self._store.metadata.read() as txn:
                entry = directories.must_find(txn, path)
                above = path if entry.kind is EntryKind.DIRECTORY else path.rpartition("/")[0]
                rows: list[dict[str, Any]] = []
                for item in stat.listing(txn, path, after=after):
                    if len(rows) == limit:
                        return {"path": above, "names": rows, "next": rows[-1]["name"]}
                    rows.append(describe.listed(item.name, item))
                return {"path": above, "names": rows, "next": None}

        return answer(await self.in_thread(page))

    async def info(self, request: Request) -> Response:
        """Get the facts of a segment, as `tierfs info --json`."""
        only(request)

        def told() -> dict[str, Any]:
            with self._store.metadata.read() as txn:
                return describe.segment_now(self._store, txn, _name(request))

        return answer(await self.in_thread(told))

    async def map(self, request: Request) -> Response:
        """Get the bytes of a segment that each tier has, as `tierfs info --map --json`."""
        only(request)

        def told() -> dict[str, Any]:
            with self._store.metadata.read() as txn:
                record = directories.segment_by_name(txn, _name(request))
                return describe.chunk_map(self._store, txn, _name(request), record)

        return answer(await self.in_thread(told))

    async def read(self, request: Request) -> Response:
        """Read a segment's bytes from its start offset, with `Range`, `If-Match`, `If-None-Match` and `If-Range`."""
        only(request, "read_priority")
        segment = self._face.segment(_name(request))
        return await read_segment(request, segment, parameter(request, "read_priority"), self.in_thread)

    async def append(self, request: Request) -> Response:
        """Append the body durably, if `expect_offset` is the segment's length; create the segment if it is missing.

        Raises InvalidRequest.
        """
        only(request, "expect_offset", "seal")
        name, expected, seal = _name(request), number(request, "expect_offset"), flag(request, "seal")
        key = idempotency_key(request)
        if not name:
            raise InvalidRequest("a segment needs a name")
        body = await self._bodies.read(request)
        try:
            done, was_made = await self._appends.append(name, body, expected, seal=seal, key=key)
        finally:
            self._bodies.free(len(body))
        return answer({"segment": name, "start": done.start, "end": done.end}, 200, _REPLAYED if was_made else None)

    async def followed(self, request: Request) -> Response:
        """List the logs that are followed into a directory, `limit` after the segment `after`, and their places."""
        only(request, "after", "limit")
        path, after = _name(request), parameter(request, "after") or ""
        limit = number(request, "limit", MOST_NAMES) or MOST_NAMES
        return answer(await self.in_thread(partial(self._following.listed, path, after, limit)))

    async def follow(self, request: Request) -> Response:
        """Append lines of followed logs with their places in their files, in one commit, each at its expected offset.

        Raises InvalidRequest.
        """
        only(request)
        into, body = _name(request), await self._bodies.read(request)
        try:
            wanted = messages.parse_request(body, into)
            begun_ms = None
            if wanted.beginning is not None:
                begun_ms = await self.in_thread(partial(self._following.begun, wanted.beginning, wanted.sender, into))
            done = await self._following.appended(wanted)
            places = await self.in_thread(partial(self._following.places, wanted)) if wanted.looks else {}
        finally:
            self._bodies.free(len(body))
        return answer({"begun_ms": begun_ms, "appends": done, "places": places})

    async def seal(self, request: Request) -> Response:
        """Seal a segment; repeating it succeeds."""
        only(request)
        segment = self._face.segment(_name(request))

        def work() -> dict[str, Any]:
            already = segment.info().sealed
            segment.seal()
            return {"segment": segment.name, "length": segment.info().length, "already_sealed": already}

        return answer(await self._appends.without_writer(segment.name, work))

    async def unseal(self, request: Request) -> Response:
        """Reopen a sealed segment."""
        only(request)
        segment = self._face.segment(_name(request))

        def work() -> dict[str, Any]:
            already = not segment.info().sealed
            segment.unseal()
            return {"segment": segment.name, "length": segment.info().length, "already_open": already}

        return answer(await self.in_thread(work))

    async def truncate(self, request: Request) -> Response:
        """Drop the bytes before an offset; the other bytes keep their offsets. Raises InvalidRequest without one."""
        only(request, "before")
        segment, before = self._face.segment(_name(request)), number(request, "before")
        if before is None:
            raise InvalidRequest("truncate needs `before`, the offset of the first byte to keep")
        done = await self.in_thread(partial(segment.truncate, before))
        return answer({"segment": segment.name, "truncated": bool(done.bytes), **fields(done)})

    async def concat(self, request: Request) -> Response:
        """Append the bytes of the sealed segment `source`, and remove its name; no byte is copied.

        Raises InvalidRequest without a source.
        """
        only(request, "source")
        target, source = self._face.segment(_name(request)), parameter(request, "source")
        if not source:
            raise InvalidRequest("concat needs `source`, the name of a sealed segment")
        work = partial(target.concat, source)
        done = await self._appends.without_writer(target.name, work)
        return answer({"target": target.name, "source": source, **fields(done.range), "chunks": done.chunks})

    async def clone(self, request: Request) -> Response:
        """Make the segment `target` of a segment's bytes, or of those before the offset `to`; no byte is copied.

        Raises InvalidRequest without a target.
        """
        only(request, "target", "to")
        segment, end = self._face.segment(_name(request)), number(request, "to")
        work = partial(segment.clone, _target(request, "clone"), end=end)
        return answer(fields(await self.in_thread(work)))

    async def rename(self, request: Request) -> Response:
        """Give a segment or a directory the name `target`, or its own name in that directory.

        Raises InvalidRequest without a target.
        """
        only(request, "target")
        return answer(fields(await self.in_thread(partial(self._face.rename, _name(request), _target(request, "mv")))))

    async def delete(self, request: Request) -> Response:
        """Remove a segment or, with `recursive`, a directory: into the trash, or `now` permanently.

        Raises InvalidRequest for the root.
        """
        only(request, "recursive", "now")
        path = _name(request)
        if not path:
            raise InvalidRequest("the root cannot be removed", remedy="remove its content")
        work = partial(self._face.delete, path, recursive=flag(request, "recursive"), now=flag(request, "now"))
        return answer({"path": path, **fields(await self._appends.without_writer(path, work))})

    async def make_directory(self, request: Request) -> Response:
        """Create a directory and its parents."""
        only(request)
        await self.in_thread(partial(self._face.make_directory, _name(request)))
        return answer({"path": _name(request)}, 201)

    async def offload(self, request: Request) -> Response:
        """Start an offload of all bytes at or below a path, or a managed ledger's closed ledgers before a position."""
        only(request, "before", "metadata")
        before, metadata = (parameter(request, name) or "" for name in ("before", "metadata"))
        run = await self.in_thread(partial(self._offloads.begin, _name(request), before, metadata))
        return answer(run.as_data(), 202)

    async def offload_status(self, request: Request) -> Response:
        """Get the status of the last offload of this path."""
        only(request)
        return answer(self._offloads.of(_name(request)).as_data())

    async def consolidate(self, request: Request) -> Response:
        """Start to join small neighbouring cold objects of each segment, and perhaps to compress plain ones."""
        only(request, "compress")
        begin = partial(self._consolidations.begin, _name(request), compress=flag(request, "compress"))
        return answer((await self.in_thread(begin)).as_data(), 202)

    async def consolidate_status(self, request: Request) -> Response:
        """Get the status of the last consolidation of this path."""
        only(request)
        return answer(self._consolidations.of(_name(request)).as_data())

    async def policy(self, request: Request) -> Response:
        """Get the policies in force at a path, with the origin of each."""
        only(request)
        return answer(await self.in_thread(partial(self._policies, _name(request))))

    async def set_policy(self, request: Request) -> Response:
        """Set policies at a path; null removes one there."""
        only(request)
        path, body = _name(request), await self._bodies.read(request, _SMALL_BYTES)
        self._bodies.free(len(body))
        wanted, unset = _policies_of(body)

        def work() -> dict[str, Any]:
            verbs.change_policies(self._store, path, wanted, unset)
            return self._policies(path)

        return answer(await self.in_thread(work))

    async def status(self, request: Request) -> Response:
        """Get the status of the store, as `tierfs status --json`."""
        only(request)
        return answer(await self.in_thread(self._status))

    async def failures(self, request: Request) -> Response:
        """Get the background work that failed and is retried."""
        only(request)
        return answer({"failures": (await self.in_thread(self._status))["troubles"]})

    async def health(self, request: Request) -> Response:
        """Check that the metadata can be read."""
        only(request)

        def look() -> str:
            with self._store.metadata.read() as txn:
                return txn.store.store_id

        return answer({"store_id": await self.in_thread(look), "healthy": True})

    async def ready(self, request: Request) -> Response:
        """Check that appends are accepted now, and offloaded by a mount or daemon."""
        only(request)
        why = await self.in_thread(self._why_not_ready)
        return answer({"ready": not why, "why": why}, 503 if why else 200)

    async def metrics(self, request: Request) -> Response:
        """Get the metrics of this process and of the store, in Prometheus' text format."""
        only(request)
        return Response(await self.in_thread(self._store.metrics.exposition), media_type="text/plain; version=0.0.4")

    def sample_metrics(self) -> None:
        """Have the metrics tell of the store too."""
        watched, clock = self._store.watched, self._store.clock
        self._store.metrics.sample_with(
            lambda: samples_of(watched, holds=False, backlog=None, uptime_s=clock.monotonic_s() - self._begun_s)
        )

    def _policies(self, path: str) -> dict[str, Any]:
        with self._store.metadata.read() as txn:
            held = policies.at(txn, path)
        shown = {
            key: {"value": policy.value, "origin": policy.origin.set_by.value, "set_on": policy.origin.name}
            for key, policy in held.all()
        }
        return {"path": path, "policy": shown}

    def _status(self) -> dict[str, Any]:
        return health_of(self._store, self._store.owner_watch.ask()).data()

    def _why_not_ready(self) -> list[str]:
        store = self._store
        why: list[str] = []
        with store.metadata.read() as txn:
            if txn.store.replica:
                why.append("the store is a replica: it does not accept appends")
            if txn.store.journal.fenced_by_epoch:
                why.append("another store has taken over the bucket")
        if store.files.free_bytes() < store.settings.write.free_space_floor_bytes:
            why.append("the local disk is full")
        if lock.current(store.paths.holder) is None:
            why.append("no mount or daemon is running: nothing is offloaded or evicted")
        return why

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do work that waits for a disk or a bucket; raises what it raises."""
        return await to_thread.run_sync(work, limiter=self._threads)


def _name(request: Request) -> str:
    """Return the name in the path of a request. Raises InvalidRequest for one that no segment has."""
    return names.join(names.split(request.path_params.get("name", "")))


def _target(request: Request, verb: str) -> str:
    target = parameter(request, "target")
    if not target:
        raise InvalidRequest(f"{verb} needs `target`, the new name")
    return target


def _policies_of(body: bytearray) -> tuple[dict[str, str], list[str]]:
    """Return the policies that a body sets, in their stored form, and those that it removes."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise InvalidRequest("the body is not JSON") from exc
    if not isinstance(given, dict) or not all(isinstance(text, str | int | None) for text in given.values()):
        raise InvalidRequest('the body is not like {"chunk_bytes": "64MiB", "offload_after": null}')
    wanted: dict[str, str] = {}
    for key, value in given.items():
        policy_text.check_key(key)
        if value is not None:
            text = {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)
            wanted[key] = policy_text.parse(key, text)
    return wanted, [key for key, value in given.items() if value is None]
