"""The cost of a month of a store: amounts times prices. Pure; prices come from a file, never from here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tierfs.base.bytes.frozen import dataclass, field

GIB = 1 << 30
DAYS = 30
"""Of a month."""
_DAY_S = 86_400
_THOUSAND = 1000

LOCAL = "local"
"""The class of bytes on the local disk."""

# The parts of a large upload, as tierfs sends them (chunkstore/s3/upload.py), each a request.
_PART_BYTES = 8 << 20

# The kind of request that a verb is, as price lists have it; a composed object is made of requests that write.
KINDS = {"put": "write", "compose": "write", "abort": "delete", "list": "list", "uploads": "list"} | {
    "read": "read",
    "stat": "read",
    "delete": "delete",
}

# A replica at rest: a request every `background.replica_refresh_s`, a HEAD, and once a minute a LIST in its place.
_LIST_EVERY_S = 60


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices of one provider, as a file has them."""

    storage: Mapping[str, float]
    """Of a GiB for a month, by storage class; LOCAL for the local disk."""
    requests: Mapping[str, float]
    """Of 1000 requests, by kind."""
    egress_gib: float | None = None
    """Of a GiB that is read."""
    retrieval_gib: Mapping[str, float] = field(default_factory=dict)
    """Of a GiB that is read from a class, in addition."""
    currency: str = ""
    source: str = ""
    as_of: str = ""


@dataclass(frozen=True, slots=True)
class MonthlyAmounts:
    """Bytes and requests of a month of a store."""

    storage_bytes: Mapping[str, int]
    """By class, LOCAL included."""
    requests: Mapping[str, float]
    """By kind."""
    read_bytes: float = 0
    saved_bytes: int = 0
    """Not stored in the cold tier because its objects are compressed."""
    replicas: int = 0
    replica_requests: Mapping[str, float] = field(default_factory=dict)
    """Of all replicas at rest, by kind."""


@dataclass(frozen=True, slots=True)
class BillLine:
    """One line of a bill."""

    what: str
    amount: float
    unit: str
    """`bytes` or `requests`."""
    price: float | None = None
    """Of a GiB, or of 1000 requests; None where the list has none."""
    cost: float | None = None


def bill(amounts: MonthlyAmounts, prices: PriceList | None) -> list[BillLine]:
    """Return the lines of a month's bill; without costs where the list has no price, or there is no list."""
    return [
        *_storage(amounts, prices),
        *_requests("requests", amounts.requests, prices),
        *_reading(amounts, prices),
        *_requests(_of_replicas("requests", amounts), amounts.replica_requests, prices),
    ]


def saved(amounts: MonthlyAmounts, prices: PriceList | None) -> list[BillLine]:
    """Return the lines that compression takes off a month's bill: storage and transfer, of all classes evenly."""
    cold = {name: held for name, held in amounts.storage_bytes.items() if name != LOCAL}
    held_bytes = sum(cold.values())
    if not amounts.saved_bytes or not held_bytes:
        return []
    share = amounts.saved_bytes / held_bytes
    less = MonthlyAmounts({name: round(held * share) for name, held in cold.items()}, {}, amounts.read_bytes * share)
    return [line for line in bill(less, prices) if line.amount]


def total(lines: list[BillLine]) -> float:
    """Return the sum of the known costs."""
    return sum(line.cost or 0.0 for line in lines)


def unpriced(lines: list[BillLine]) -> list[BillLine]:
    """Return the lines with an amount and without a price; a local disk without one is not counted."""
    return [line for line in lines if line.amount and line.cost is None and line.what != f"storage {LOCAL}"]


def requests_of(calls: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Return the requests of calls, by kind; `calls` has number and bytes by verb.

    A large upload is one call: each 8 MiB is a request in addition, an upper bound for packs and small objects.
    """
    requests = dict.fromkeys(("write", "list", "read", "delete"), 0.0)
    for verb, (number, length_bytes) in calls.items():
        parts = length_bytes / _PART_BYTES if verb == "put" else 0.0
        requests[KINDS.get(verb, "write")] += number + parts
    return requests


def of_replicas(replicas: int, refresh_s: float) -> dict[str, float]:
    """Return the requests that replicas at rest make in a month, by kind."""
    looks = DAYS * _DAY_S / refresh_s
    lists = min(looks, DAYS * _DAY_S / _LIST_EVERY_S)
    return {"list": replicas * lists, "read": replicas * (looks - lists)} if replicas else {}


def _storage(amounts: MonthlyAmounts, prices: PriceList | None) -> Iterator[BillLine]:
    for name, length_bytes in amounts.storage_bytes.items():
        price = None if prices is None else prices.storage.get(name)
        yield _line(f"storage {name}", length_bytes, "bytes", price, GIB)


def _requests(what: str, requests: Mapping[str, float], prices: PriceList | None) -> Iterator[BillLine]:
    for kind, number in requests.items():
        price = None if prices is None else prices.requests.get(kind)
        yield _line(f"{what} {kind}", number, "requests", price, _THOUSAND)


def _reading(amounts: MonthlyAmounts, prices: PriceList | None) -> Iterator[BillLine]:
    """Yield the transfer, and what the classes charge for reading, for bytes that are read from all of them evenly."""
    read_bytes = amounts.read_bytes
    yield _line("read (egress)", read_bytes, "bytes", None if prices is None else prices.egress_gib, GIB)
    cold = {name: held for name, held in amounts.storage_bytes.items() if name != LOCAL}
    held_bytes = sum(cold.values())
    for name, held in cold.items():
        price = None if prices is None else prices.retrieval_gib.get(name)
        if price is not None and held_bytes:
            yield _line(f"read (retrieval {name})", read_bytes * held / held_bytes, "bytes", price, GIB)


def _line(what: str, amount: float, unit: str, price: float | None, of: int) -> BillLine:
    return BillLine(what, amount, unit, price, None if price is None else amount / of * price)


def _of_replicas(what: str, amounts: MonthlyAmounts) -> str:
    return f"{what} of {amounts.replicas} replicas" if amounts.replicas != 1 else f"{what} of 1 replica"
