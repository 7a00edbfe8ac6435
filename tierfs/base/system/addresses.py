"""Addresses that a process of a store listens at, as settings have them: HOST:PORT."""

from __future__ import annotations

import ipaddress

from tierfs.base.words import units
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable

LOOPBACK = "127.0.0.1"

_MOST_PORT = 65535


def parse_address(setting: str, text: str, example: str, *, host: str = "") -> tuple[str, int]:
    """Return the host and the port of HOST:PORT; of a port alone with `host`. Raises InvalidRequest with an example."""
    before, _, port = text.rpartition(":")
    number = units.decimal(port, _MOST_PORT)
    if not (before or host) or number is None:
        raise InvalidRequest(
            f"invalid {setting} = {printable(text)!r}: expected HOST:PORT", remedy=f"use an address like {example}"
        )
    return (before or host).strip("[]"), number


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
