"""`python -m tests.benchmarks.relay --to HOST:PORT`: relay until stdin ends; a line of it asks for the counts."""

from __future__ import annotations

import argparse
import json
import resource
import socket
import sys

from tests.benchmarks.relay.loop import Address, RelayLoop, Slowness

_BACKLOG = 256


def main() -> None:
    """Listen, print the address as a URL, and relay."""
    chosen = _parser().parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each connection takes six files
    slowness = Slowness(chosen.delay_ms / 1e3, chosen.rate_mb_s * 1e6, chosen.upload_mb_s * 1e6)
    with socket.create_server(chosen.listen, backlog=_BACKLOG) as listener:
        host, port = listener.getsockname()
        print(f"http://{host}:{port}", flush=True)
        RelayLoop(listener, chosen.to, slowness, sys.stdin.fileno(), _tell).run()


def _tell(counts: dict[str, int]) -> None:
    print(json.dumps(counts), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.relay", description=__doc__)
    parser.add_argument("--to", type=_address, required=True, metavar="HOST:PORT", help="the server")
    parser.add_argument("--listen", type=_address, default=("127.0.0.1", 0), metavar="HOST:PORT", help="any free port")
    parser.add_argument("--delay-ms", type=_amount, default=0, help="each answer begins so much later (0)")
    parser.add_argument("--rate-mb-s", type=_amount, default=0, help="of one connection, to its client; 0: no limit")
    parser.add_argument("--upload-mb-s", type=_amount, default=0, help="of one connection, from its client (0)")
    return parser


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, like 127.0.0.1:9200")
    return host, int(port)


def _amount(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1
    if not 0 <= found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return found


if __name__ == "__main__":
    main()
