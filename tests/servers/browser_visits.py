"""Visits of a real Chromium to pages: what it saw, requested and complained about, and what axe finds."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MODULES = ROOT / ".venv/browser"
"""Where `make test-deps` puts playwright-core and axe-core, which are of npm."""
_SCRIPT = Path(__file__).parent / "browser/visit.mjs"
_TIMEOUT_S = 180


def program() -> str | None:
    """The browser; None without one."""
    return shutil.which("chromium-headless-shell") or shutil.which("chromium")


def why_not() -> str | None:
    """Why no browser can visit anything here; None where one can."""
    if program() is None:
        return "no Chromium: make test-deps"
    if shutil.which("node") is None:
        return "no node, which drives the browser: install nodejs, then make test-deps"
    return None if (MODULES / "node_modules/axe-core").is_dir() else "no axe-core: make test-deps (it needs npm)"


@dataclass(frozen=True)
class BrowserVisit:
    """Pages to visit."""

    base: str
    token: str
    pages: Sequence[str]
    looks: Sequence[tuple[int, str]]
    """Widths and themes."""
    keys: int = 0
    shots: Sequence[dict[str, Any]] = field(default_factory=list)

    def seen(self) -> dict[str, Any]:
        """Visit them."""
        asked = json.dumps({**vars(self), "program": program()})
        done = subprocess.run(
            ["node", str(_SCRIPT), str(MODULES)],
            input=asked,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        seen: dict[str, Any] = json.loads(done.stdout)
        return seen
