"""Tokens of hosts that only send logs: each opens the paths of followed logs of one directory, and nothing else."""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from pathlib import Path

from tierfs.base.system import os_errors
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest, PermissionDenied
from tierfs.base.words.names import printable

# Shorter ones can be guessed; 16 characters are 96 bits of what `tierfs` writes.
LEAST_TOKEN = 16

# Paths of followed logs, each followed by the name of a directory.
_PATHS = ("/v1/follow/", "/v1/followed/")


class SenderTokens:
    """The tokens of senders, by directory. They may be read again while requests are checked."""

    def __init__(self, directories: Mapping[bytes, str] | None = None) -> None:
        """Without any, no sender is admitted."""
        self._directories = dict(directories or {})

    def read(self, path: Path | None) -> None:
        """Take the tokens in a file from now on; without one, none.

        Raises PermissionDenied for a file that others may read, InvalidRequest for a line that is no directory and
        token, and the errors of the file; the tokens of before then stay.
        """
        self._directories = {} if path is None else _tokens_in(path)

    def directory_of(self, given: bytes) -> str | None:
        """Return the directory of a token; None for one that is not known."""
        directory = None
        for token, each in self._directories.items():  # all of them: the time shows nothing of which is right
            if hmac.compare_digest(token, given):
                directory = each
        return directory


def may_follow(path: str, directory: str) -> bool:
    """Return whether a decoded path is one of followed logs in or below a directory."""
    prefix = next((each for each in _PATHS if path.startswith(each)), None)
    if prefix is None:
        return False
    try:
        name = names.join(names.split(path.removeprefix(prefix)))
    except InvalidRequest:
        return False
    return not directory or name == directory or name.startswith(f"{directory}/")


def require_private(path: Path, status: os.stat_result) -> None:
    """Raise PermissionDenied for a file with tokens that other users may read."""
    if status.st_mode & 0o077 or status.st_uid != os.geteuid():
        raise PermissionDenied(
            f"other users can read the token in {printable(str(path))}", remedy=f"chmod 600 {printable(str(path))}"
        )


def is_token(text: str) -> bool:
    """Return whether a text can be a token."""
    return len(text) >= LEAST_TOKEN and text.isascii() and text.isprintable() and " " not in text


def _tokens_in(path: Path) -> dict[bytes, str]:
    with os_errors.map_os_errors(str(path)), path.open("rb") as file:
        require_private(path, os.fstat(file.fileno()))
        lines = file.read().decode(errors="replace").splitlines()
    tokens: dict[bytes, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        directory, _, token = line.strip().rpartition(" ")
        if not directory or not is_token(token) or token.encode() in tokens:
            raise InvalidRequest(
                f"line {number} of {printable(str(path))} is not a directory and a token of its own",
                remedy=f"write DIRECTORY TOKEN, the token with at least {LEAST_TOKEN} printable characters",
            )
        tokens[token.encode()] = names.join(names.split(directory.strip()))
    return tokens
