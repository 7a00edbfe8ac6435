"""Define tierfs completion: print what makes a shell complete commands and names."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from tierfs.base.words.errors import InvalidRequest
from tierfs.faces.cli.group import command
from tierfs.faces.cli.session import Session

_PROGRAM = "tierfs"
_SHELLS = ("bash", "zsh", "fish")

# Where click looks for it, by the program's name.
_VARIABLE = "_TIERFS_COMPLETE"


@command("completion")
@click.argument("shell", metavar="[bash|zsh|fish]", required=False)
def completion(session: Session, shell: str | None) -> None:
    """Print the script that completes commands, options and names in a shell; without a name, for $SHELL.

    In bash: eval "$(tierfs completion bash)"; in ~/.bashrc for all later shells.
    """
    shell = shell or Path(os.environ.get("SHELL", "")).name or _SHELLS[0]
    completer = get_completion_class(shell) if shell in _SHELLS else None
    if completer is None:
        raise InvalidRequest(f"completion does not support {shell}", remedy=f"supported: {', '.join(_SHELLS)}")
    root = click.get_current_context().find_root().command
    script = completer(root, {}, _PROGRAM, _VARIABLE).source()
    session.result({"shell": shell, "script": script}, script.strip())
