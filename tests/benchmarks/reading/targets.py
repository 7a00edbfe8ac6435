"""Targets of reading, and whether they were reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.benchmarks.reading.counted_questions import CACHED, RANDOM, SEQUENTIAL
from tests.benchmarks.reading.figures import (
    CPU,
    FAR,
    FARTHER,
    FETCHED,
    HTTPS,
    IOPS,
    KIB_FETCHED,
    LOOPBACK,
    MORE_IS_BETTER,
    P50,
    RATE,
    RSS,
    SPREAD,
    Answer,
    Part,
)
from tests.benchmarks.reading.peers import JUICEFS, KNOWN
from tests.benchmarks.reading.random_questions import (
    CHUNKY_FIRST,
    CHUNKY_OPENS,
    LARGE_BYTES,
    MANY_THREADS,
    OPENS,
    SMALL_BYTES,
    scatter_title,
)
from tests.benchmarks.reading.s3_questions import DIRECT, MANY_BUDGET_BYTES, TIERFS
from tierfs.base.options.config import ReadSettings
from tierfs.base.words.types import MIB

Find = Callable[[Part, "Target"], float | None]
"""The figure a target is about; None where it was not measured."""

_PEERS = frozenset(peer.label for peer in KNOWN)
_LOCAL_COPY = frozenset(peer.label for peer in KNOWN if peer.local_copy)
_BESIDE_BUDGET_MIB = 150
"""Memory of a mount besides its budget: the interpreter, its libraries, connections and the kernel's requests."""


@dataclass(frozen=True)
class Target:
    """A bound on one figure of a part."""

    part: str
    subject: str
    metric: str
    bound: float
    against: str
    """The figure that the bound is a ratio to; empty for a bound on the figure itself."""
    find: Find
    at_least: bool = True

    def held_by(self, value: float) -> bool:
        """Whether the figure is within the bound."""
        return value >= self.bound if self.at_least else value <= self.bound


@dataclass(frozen=True)
class Verdict:
    """What was found for a target; None where it was not measured."""

    target: Target
    found: float | None

    @property
    def held(self) -> bool | None:
        """None where it was not measured."""
        return None if self.found is None else self.target.held_by(self.found)


def verdicts(answer: Answer) -> list[Verdict]:
    """One for each target of the question, in order."""
    parts = {part.title: part for part in answer.parts}
    return [
        Verdict(target, target.find(parts[target.part], target) if target.part in parts else None)
        for target in TARGETS[answer.link].get(answer.number, ())
    ]


def best_peer(part: Part, metric: str, peers: frozenset[str] = _PEERS) -> float | None:
    """Median of the one of these that did best."""
    found = [value for label in part.found if label in peers and (value := part.median(label, metric)) is not None]
    if not found:
        return None
    return max(found) if metric in MORE_IS_BETTER else min(found)


def _itself(part: Part, target: Target) -> float | None:
    return part.median(target.subject, target.metric)


def _to_limit(part: Part, target: Target) -> float | None:
    return _ratio(_itself(part, target), part.median(part.limit, target.metric))


def _to_best_peer(part: Part, target: Target) -> float | None:
    return _ratio(_itself(part, target), best_peer(part, target.metric))


def _to_best_remote_peer(part: Part, target: Target) -> float | None:
    return _ratio(_itself(part, target), best_peer(part, target.metric, _PEERS - _LOCAL_COPY))


def _ratio(ours: float | None, other: float | None) -> float | None:
    return ours / other if ours is not None and other else None


def _limit(part: str, metric: str, bound: float, subject: str = TIERFS) -> Target:
    """Against the part's limit."""
    return Target(part, subject, metric, bound, "the limit", _to_limit, metric in MORE_IS_BETTER)


def _ahead(part: str, metric: str, bound: float) -> Target:
    """Against the best peer."""
    return Target(part, TIERFS, metric, bound, "the best other mount", _to_best_peer, metric in MORE_IS_BETTER)


def _ahead_at_random(part: str, metric: str) -> Target:
    """Against the best peer that reads from S3 and not from a local copy."""
    against = f"the best other mount except {' and '.join(sorted(_LOCAL_COPY))}"
    return Target(part, TIERFS, metric, 1.0, against, _to_best_remote_peer, metric in MORE_IS_BETTER)


def _most(part: str, metric: str, bound: float, subject: str = TIERFS) -> Target:
    return Target(part, subject, metric, bound, "", _itself, at_least=False)


def _random_targets(sizes_bytes: Sequence[int] = (SMALL_BYTES, LARGE_BYTES)) -> Sequence[Target]:
    found: list[Target] = []
    for block_bytes in sizes_bytes:
        one, many = scatter_title(block_bytes, 1), scatter_title(block_bytes, MANY_THREADS)
        found += [
            _limit(one, P50, 1.25),
            _ahead_at_random(one, P50),
            _limit(many, IOPS, 0.8),
            _ahead_at_random(many, IOPS),
        ]
    return found


def _within_budget() -> Target:
    """Memory of the mount within the budget of reads, beside all that it needs anyway."""
    return _most("", RSS, ReadSettings().budget_bytes / MIB + _BESIDE_BUDGET_MIB)


def _to_juicefs(part: str, metric: str, bound: float) -> Target:
    return Target(part, TIERFS, metric, bound, JUICEFS, _to_one_peer(JUICEFS), metric in MORE_IS_BETTER)


def _to_one_peer(label: str) -> Find:
    return lambda part, target: _ratio(_itself(part, target), part.median(label, target.metric))


_SMALL_ONE, _SMALL_MANY = scatter_title(SMALL_BYTES, 1), scatter_title(SMALL_BYTES, MANY_THREADS)

# A GET of 128 KiB has headers too: 1.02 of it is no more than one per read.
_FETCHED = (_most(SEQUENTIAL, FETCHED, 1.02), _limit(RANDOM, KIB_FETCHED, 1.02))

_LOOPBACK: Mapping[int, Sequence[Target]] = {
    1: (
        _limit("", RATE, 0.82),
        _limit("", RATE, 0.92, DIRECT),
        _ahead("", RATE, 1.2),
        _most("", CPU, 0.9),
        _most("", CPU, 0.9, DIRECT),
        _within_budget(),
    ),
    2: (
        _limit("", RATE, 0.82),
        _ahead("", RATE, 1.8),
        _to_juicefs("", RATE, 1.1),
        Target("", TIERFS, SPREAD, 0.6, "", _itself),
        _within_budget(),
    ),
    3: (_limit("", RATE, 0.85),),
    4: (_limit("", RATE, 0.9),),
    5: (_limit(OPENS, P50, 1.3), _limit(CHUNKY_FIRST, P50, 1.3), _limit(CHUNKY_OPENS, P50, 1.3)),
    6: (*_random_targets(), _to_juicefs(_SMALL_ONE, P50, 1.0), _to_juicefs(_SMALL_MANY, IOPS, 1.0)),
    7: (_limit("", RATE, 0.8), _most("", RSS, MANY_BUDGET_BYTES / MIB + _BESIDE_BUDGET_MIB)),
    8: (_limit("", RATE, 0.7, CACHED),),
    9: _FETCHED,
}

_HTTPS: Mapping[int, Sequence[Target]] = {
    1: (_ahead("", RATE, 1.0), _most("", CPU, 1.0), _within_budget()),
    2: (_within_budget(),),
    5: (_limit(OPENS, P50, 1.3),),
    6: _random_targets([SMALL_BYTES]),
    9: _FETCHED,
}

_FAR: Mapping[int, Sequence[Target]] = {
    1: (_limit("", RATE, 0.9), _ahead("", RATE, 1.1), _within_budget()),
    2: (_limit("", RATE, 0.9), _ahead("", RATE, 1.2), _within_budget()),
    5: (_limit(OPENS, P50, 1.15),),
    9: _FETCHED,
}

_FARTHER: Mapping[int, Sequence[Target]] = {
    1: (_limit("", RATE, 0.85), _ahead("", RATE, 1.0), _within_budget()),
    2: (_within_budget(),),
    9: _FETCHED,
}

TARGETS: Mapping[str, Mapping[int, Sequence[Target]]] = {
    LOOPBACK: _LOOPBACK,
    HTTPS: _HTTPS,
    FAR: _FAR,
    FARTHER: _FARTHER,
}
"""By link and question."""
