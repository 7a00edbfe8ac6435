"""moto's S3 server as a context manager: quick to start (about 2 s), in memory.

It runs in a process of its own, because importing moto patches botocore, and because its deprecation
warnings would be errors in ours.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from tests.servers.process import ServerProcess

ROOT = Path(__file__).parents[2]


class MotoServer(ServerProcess):
    """moto's threaded server on a free port."""

    def __init__(self) -> None:
        super().__init__([sys.executable, "-m", "tests.servers.moto_server"], cwd=ROOT)


def serve() -> None:
    """Serve S3 on a free loopback port until standard input closes."""
    from moto.server import ThreadedMotoServer

    # Its line per request would fill the pipe, which nobody reads after the first line.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    print(f"http://{host}:{port}", flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    serve()
