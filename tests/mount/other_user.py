"""Look at a mount as another user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_NOBODY = 65534
# Rights are dropped in the mount: the user may be unable to go there, or to load an interpreter.
_PROGRAM = f"""
import os, sys
os.chdir(sys.argv[1])
os.setgroups([]); os.setgid({_NOBODY}); os.setuid({_NOBODY})
name = sys.argv[2]
sys.stdout.buffer.write(" ".join(os.listdir(name)).encode() if os.path.isdir(name) else open(name, "rb").read())
"""


def require_root() -> None:
    """Skip the test unless this process may become another user."""
    if os.geteuid():
        pytest.skip("needs root, to become another user")


def seen(mnt: Path, name: str) -> bytes | None:
    """The bytes of a file of a mount, or the names in a directory, as `nobody` reads them; None where refused."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM, str(mnt), name], capture_output=True, check=False)
    assert done.returncode == 0 or b"PermissionError" in done.stderr, done.stderr
    return done.stdout if done.returncode == 0 else None
