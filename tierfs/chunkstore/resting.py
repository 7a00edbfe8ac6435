"""Connections that rest between requests."""

from __future__ import annotations

import socket


def take_open(resting: list[socket.socket]) -> socket.socket | None:
    """Take one that is still open, the one used last, for it is the least likely to be closed; None when there is none.

    Those that are not are closed on the way.
    """
    while resting:
        connection = resting.pop()
        if _is_clean(connection):
            return connection
        connection.close()
    return None


def close_all(resting: list[socket.socket]) -> None:
    """Close and forget them."""
    while resting:
        resting.pop().close()


def _is_clean(connection: socket.socket) -> bool:
    """Whether the server neither closed it nor said something nobody asked for."""
    try:
        connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
