"""A request to the server of tests/forked.py; as a program, `tierfs` for a shell, with the shell's streams.

A shell starts it for each command, so that it imports little: 15 ms, and `python -m tierfs` takes half a second.
"""

from __future__ import annotations

import array
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence

SERVER_FD = "FORK_SERVER_FD"
"""Names the variable with the descriptor of the server's socket."""

ANSWER_BYTES = 64


def send(
    server: socket.socket, module: str, words: Sequence[str], env: Mapping[str, str], streams: Sequence[int]
) -> socket.socket:
    """Ask for `python -m MODULE WORDS` in the directory of now; return where its number and then its end are told."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    request = json.dumps([module, list(words), dict(env), os.getcwd()]).encode()
    with theirs:
        descriptors = array.array("i", [*streams, theirs.fileno()])
        server.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
    return ours


def main() -> int:
    """Run `tierfs` with the words of this program."""
    env = dict(os.environ)
    with (
        socket.socket(fileno=int(env.pop(SERVER_FD))) as server,
        send(server, "tierfs", sys.argv[1:], env, (0, 1, 2)) as answers,
    ):
        answers.recv(ANSWER_BYTES)
        return int(answers.recv(ANSWER_BYTES))


if __name__ == "__main__":
    sys.exit(main())
