"""Follow into the store of another host, through its admin API.

The sender keeps nothing: what the other store has of each log is in its rows, which it returns at the start and after
any error. Each append has the length that its segment must have, and its row is committed with it, so a request whose
answer was lost is not made twice: the sender looks at the rows before it continues.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tierfs.app.follow import beginnings, messages
from tierfs.app.follow.messages import Beginning, FollowRequest
from tierfs.app.follow.server import AdminServer, TooLarge, error_of
from tierfs.app.follow.target import LogAppend, LogPlace, TargetUnavailable, of_other
from tierfs.app.room import Tells
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.words import names
from tierfs.base.words.errors import Closed, Fenced, StorageFull, TierfsError, Unavailable, Unconfirmed
from tierfs.base.words.types import ByteRange

if TYPE_CHECKING:
    from tierfs.app.follow.sources import Log, LogSource

T = TypeVar("T")

_FOLLOW, _FOLLOWED = "/v1/follow/", "/v1/followed/"

# Between two attempts to reach a server.
_RETRY_S = 1.0

MACHINE_ID = Path("/etc/machine-id")
# machine-id(5) asks programs to show a hash with a key of their own.
_APPLICATION = b"tierfs follow"
_ID_DIGITS = 8

# The server itself, not one segment, cannot take lines now. Unconfirmed lines are in the segment.
_OF_SERVER = (StorageFull, Unavailable, Closed, Fenced)


class RemoteTarget:
    """A directory of a store that another host's `tierfs admin` serves. Use it in one thread."""

    def __init__(
        self,
        server: AdminServer,
        into: str,
        sender: str,
        tells: Tells,
        *,
        stop: threading.Event,
        waits: bool,
        clock: Clock | None = None,
    ) -> None:
        """Raise InvalidRequest for a bad `into` or `sender`. `waits`: at the start, until the server answers."""
        self.into = names.join(names.split(into))
        self.sender = messages.checked_sender(sender)
        self.clock = SystemClock() if clock is None else clock
        self.stop = stop
        self._server = server
        self._tells = tells
        self._waits = waits
        self._known: dict[str, int] | None = None
        """The time of the last commit of each log, by its segment; as of the start, and appends since."""
        self._begun: dict[tuple[str, str], int] = {}
        """The time at which following began, by path and directory of each source of this host."""
        self._has_begun = False
        self._fails_until_s = 0.0
        self._failure: TargetUnavailable | None = None

    def begin(self, sources: Sequence[LogSource], logs: Sequence[Log], at_ms: int) -> int | None:
        """Record that following sources begins with these logs. Raises the server's errors."""
        self._require_listing()
        begun = [self._begun[key] for each in sources if (key := (each.path, each.below)) in self._begun]
        if not begun and not logs:
            return None
        if len(begun) < len(sources):
            first = self._patiently(lambda: beginnings.first_ranges(self, logs))
            beginning = Beginning(at_ms, tuple(sources), tuple(first))
            begun = [self._patiently(lambda: self._begin(beginning))]
        self._has_begun = True
        return min(begun)

    def _begin(self, beginning: Beginning) -> int:
        with self._understood():
            return int(self._follow(FollowRequest(self.sender, beginning))["begun_ms"])

    def is_known(self, segment: str) -> bool:
        """Return whether a segment follows a log."""
        return segment in self._require_listing()

    def recent(self, since_ms: int) -> list[str]:
        """Return the segments whose logs had lines since a time."""
        return [segment for segment, at_ms in self._require_listing().items() if at_ms >= since_ms]

    def places(self, segments: Sequence[str]) -> dict[str, LogPlace | TierfsError]:
        """Return what the store has of each log, by one request. At the start it raises what makes that impossible."""
        if not segments:
            return {}
        try:
            with self._understood():
                given = self._follow(FollowRequest(self.sender, looks=dict.fromkeys(segments, 0)))["places"]
                return {segment: self._place(segment, given[segment]) for segment in segments}
        except TierfsError as exc:
            if not self._has_begun:
                raise
            return dict.fromkeys(segments, exc)

    def _place(self, segment: str, given: Any) -> LogPlace | TierfsError:
        if "error" in given:
            return error_of(given)
        place = messages.place_of_data(given)
        return of_other(segment, place.ranges, self.sender) or place

    def last_bytes(self, segment: str, most_bytes: int) -> bytes:
        """Return the last bytes of a segment."""
        with self._understood():
            given = self._follow(FollowRequest(self.sender, looks={segment: most_bytes}))["places"][segment]
            if "error" in given:
                raise error_of(given)
            return base64.b64decode(given["last_bytes"])

    def append(self, appends: Sequence[LogAppend]) -> list[ByteRange | TierfsError]:
        """Append by one request; by several if the server takes no body of that length."""
        try:
            with self._understood():
                given = self._follow(FollowRequest(self.sender, appends=tuple(appends)))["appends"]
                results = [self._result(each) for _, each in zip(appends, given, strict=True)]
        except TooLarge as exc:
            if len(appends) == 1:
                return [exc]
            half = len(appends) // 2
            return [*self.append(appends[:half]), *self.append(appends[half:])]
        except TierfsError as exc:
            return [exc] * len(appends)
        known = self._require_listing()
        for append, result in zip(appends, results, strict=True):
            if isinstance(result, ByteRange):
                known[append.segment] = self.clock.now_ms()
        return results

    def _result(self, given: Any) -> ByteRange | TierfsError:
        if "error" not in given:
            return ByteRange(given["start"], given["end"])
        error = error_of(given)
        return self._unavailable(error, is_reached=True) if _is_of_server(error) else error

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Take an answer apart. Raises TargetUnavailable for one that has not the form of docs/admin.md."""
        try:
            yield
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise self._unavailable(Unavailable(f"{self._server.address.url} sent another answer: {exc!r}")) from exc

    def let_go(self, idle_s: float) -> None:
        """Do nothing: the server releases segments by itself."""

    def reload(self) -> None:
        """Read the certificates again; the token is read for each request."""
        self._server.reload()

    def close(self) -> None:
        """Close the connection."""
        self._server.close()

    def _require_listing(self) -> dict[str, int]:
        """Return the logs of this host in the directory, which are listed once, with its sources."""
        if self._known is None:
            self._known = self._patiently(self._listed)
        return self._known

    def _listed(self) -> dict[str, int]:
        known: dict[str, int] = {}
        after: str | None = ""
        while after is not None:
            with self._understood():
                page = self._called(partial(self._page, after))
                for each in page["streams"]:
                    newest = each["ranges"][-1] if each["ranges"] else {}
                    if newest.get("sender") == self.sender and not newest.get("cursor"):
                        known[each["segment"]] = newest.get("committed_ms", 0)
                for each in page["sources"]:
                    if (each["into"], each["sender"]) == (self.into, self.sender):
                        self._begun[each["path"], each["below"]] = each["begun_ms"]
                after = page["next"]
        return known

    def _page(self, after: str) -> dict[str, Any]:
        return self._server.get(_FOLLOWED + self.into, after=after)

    def _follow(self, request: FollowRequest) -> dict[str, Any]:
        """Return the answer to a request. Raises TargetUnavailable, TooLarge and InvalidRequest."""
        body = messages.request_bytes(request, self.into)
        return self._called(lambda: self._server.post(_FOLLOW + self.into, body))

    def _called(self, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Make a request, unless one failed a moment ago: a round of many logs waits for one timeout, not for many."""
        if self._failure is not None and self.clock.monotonic_s() < self._fails_until_s:
            raise self._failure
        self._failure = None
        self.stop.is_set()  # which reports to a watchdog that this loop runs
        try:
            return call()
        except TooLarge:
            raise
        except TierfsError as exc:
            # At the start a wrong token or address is an error; later somebody may repair it.
            if self._has_begun or _is_of_server(exc):
                raise self._unavailable(exc) from exc
            raise

    def _unavailable(self, exc: TierfsError, *, is_reached: bool = False) -> TargetUnavailable:
        failure = TargetUnavailable(str(exc), remedy=exc.remedy, is_reached=is_reached)
        self._failure, self._fails_until_s = failure, self.clock.monotonic_s() + _RETRY_S
        return failure

    def _patiently(self, work: Callable[[], T]) -> T:
        """Do work at the start, again and again until the server answers; report once that it does not."""
        told = False
        while True:
            try:
                return work()
            except TargetUnavailable as exc:
                if not self._waits or self.stop.wait(_RETRY_S):
                    raise
                if not told:
                    self._tells.warn(f"waiting: {exc}")
                told, self._failure = True, None


def default_sender(machine_id: Path = MACHINE_ID) -> str:
    """Return the name of this host: its host name, and a hash of its machine id if it has one.

    Hosts that were cloned have one machine id, and those of different sites may have one host name.
    """
    name = os.uname().nodename
    with suppress(OSError):
        machine = machine_id.read_bytes().strip()
        if machine and machine != b"uninitialized":
            return f"{name}-{hmac.new(machine, _APPLICATION, hashlib.sha256).hexdigest()[:_ID_DIGITS]}"
    return name


def _is_of_server(error: TierfsError) -> bool:
    return isinstance(error, _OF_SERVER) and not isinstance(error, Unconfirmed)
