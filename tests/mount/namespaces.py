"""Mount namespaces of tests, without the mounts of other tests: those would not end while the namespace has a copy."""

from __future__ import annotations

from pathlib import Path

# The latest first, so that no mount is hidden by another. umount does not resolve the paths: a mount may not answer.
FORGET_OTHERS = """
tac /proc/self/mountinfo | while read -r _ _ _ _ at _; do
  case $at in "$keep"|"$keep"/*) ;; */pytest-of-*) umount --internal-only --lazy -c "$(printf %b "$at")" ;; esac
done
"""
"""Script of a shell in a namespace of its own: unmounts what tests mounted, but in the directory `$keep`."""

_ENTER = f"""
keep=$0
{FORGET_OTHERS}
exec "$@"
"""


def in_namespace(directory: Path, *command: str) -> list[str]:
    """Return a command that runs another in a mount namespace; of the mounts of tests it has those in `directory`."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER, str(directory), *command]
