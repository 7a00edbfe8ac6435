"""What a measurement of the link to a cold tier says: its figures, and what keeps it from carrying more. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tierfs.types import MIB

_FULL = 0.75
"""Streams that reach this share of what their connections carry are limited by these (a guess: the rest is the start
and the end of a short measurement)."""

_BUSY = 0.85
"""A processor this busy is the limit (a guess: the rest is waiting in between)."""

_BYTES_PER_MB = 1e6
_MS_PER_S = 1000


class LinkLimit(StrEnum):
    """What has to change first, for the link to carry more."""

    CONNECTION = "connection"
    """Each connection carries no more, and tierfs opens no more of them."""
    STREAMS_SETTING = "read.streams"
    """Each connection carries no more, and a setting allows no more of them."""
    PROCESSOR = "processor"
    """All cores are busy."""
    INTERPRETER = "interpreter"
    """One core is busy: Python code of one process runs on no second one."""
    COLD_TIER = "cold tier"
    """None of these: the server or disk, or the network."""


@dataclass(frozen=True, slots=True)
class LinkRates:
    """What large reads of a cold tier reached, alone and together."""

    connection_bytes_per_s: float
    """Of one, after its first byte."""
    bytes_per_s: float
    """Of all streams together."""
    range_bytes: int
    """The length of each read of the streams."""
    streams: int
    """Reads at once, bounded by `read.streams`."""
    link_streams: int
    """Reads at once that the link takes."""
    own_cores: float
    """Cores that this process kept busy meanwhile."""
    busy_share: float
    """The part of this machine's processor that was busy meanwhile, with all its processes; 1 is all cores."""


@dataclass(frozen=True, slots=True)
class LinkMeasurement:
    """A short look at the link to a cold tier."""

    first_byte_s: float
    """The median time of small reads, one after the other, over a connection that is open."""
    read_bytes: int
    """Read for the whole measurement, which may cost money."""
    rates: LinkRates | None
    """None where no object is large enough to measure them."""

    @property
    def limit(self) -> LinkLimit | None:
        """The limit of large reads; None if they were not measured."""
        return None if self.rates is None else limit_of(self.first_byte_s, self.rates)

    def data(self) -> dict[str, Any]:
        """Return the figures for programs, named as those of a mount's `stats`."""
        rates = self.rates
        return {
            "first_byte_s": self.first_byte_s,
            "connection_bytes_per_s": None if rates is None else rates.connection_bytes_per_s,
            "bytes_per_s": None if rates is None else rates.bytes_per_s,
            "streams": None if rates is None else rates.streams,
            "link_streams": None if rates is None else rates.link_streams,
            "limit": None if self.limit is None else self.limit.value,
            "read_bytes": self.read_bytes,
        }


def limit_of(first_byte_s: float, rates: LinkRates) -> LinkLimit:
    """Return what limits reads of these rates."""
    of_one = rates.range_bytes / (first_byte_s + rates.range_bytes / rates.connection_bytes_per_s)
    if rates.bytes_per_s >= _FULL * rates.streams * of_one:
        return LinkLimit.STREAMS_SETTING if rates.streams < rates.link_streams else LinkLimit.CONNECTION
    if rates.busy_share >= _BUSY:
        return LinkLimit.PROCESSOR
    return LinkLimit.INTERPRETER if rates.own_cores >= _BUSY else LinkLimit.COLD_TIER


def described(found: LinkMeasurement) -> str:
    """Return the measurement in a line for people."""
    read = f"{found.read_bytes / MIB:.1f} MiB read"
    first_byte = f"first byte {found.first_byte_s * _MS_PER_S:.1f} ms"
    if found.rates is None:
        return f"{first_byte}; no object is large enough to measure more ({read})"
    rates = found.rates
    alone, together = _megabytes(rates.connection_bytes_per_s), _megabytes(rates.bytes_per_s)
    shown = f"{first_byte}, {alone} by one connection, {together} by {rates.streams} ({read})"
    return f"{shown}; limit: {_named(limit_of(found.first_byte_s, rates), rates)}"


def _named(limit: LinkLimit, rates: LinkRates) -> str:
    match limit:
        case LinkLimit.CONNECTION:
            return f"each connection ({_megabytes(rates.connection_bytes_per_s)} x {rates.streams} streams)"
        case LinkLimit.STREAMS_SETTING:
            return f"read.streams = {rates.streams}, the link takes {rates.link_streams}"
        case LinkLimit.PROCESSOR:
            return "this machine's processor, all of whose cores are busy"
        case LinkLimit.INTERPRETER:
            return "this machine's processor: Python code runs on one core"
        case LinkLimit.COLD_TIER:
            return "the cold tier or the network"


def _megabytes(bytes_per_s: float) -> str:
    return f"{bytes_per_s / _BYTES_PER_MB:,.0f} MB/s"
