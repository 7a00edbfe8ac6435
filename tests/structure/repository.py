"""A git repository of a test, with files of this one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

_ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    **{f"GIT_{role}_{part}": f"{part.lower()}@test" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")},
}


class Repository:
    """An empty repository at `path`, and what is done there."""

    def __init__(self, path: Path, *copied: str) -> None:
        """`copied` are files and folders of this repository that are there, not yet committed."""
        self.path = path
        path.mkdir()
        self.run("git", "init", "-q", "-b", "main")
        for name in copied:
            target = path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            copy(ROOT / name, target)

    def run(self, *command: str, code: int = 0) -> str:
        """Run a command; return what it printed on both streams. Raises AssertionError for another exit code."""
        done = subprocess.run(
            command,
            cwd=self.path,
            env=_ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def write(self, name: str, text: str) -> None:
        """Write a file and stage it."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        self.run("git", "add", name)
