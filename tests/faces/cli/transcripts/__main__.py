"""Play transcripts: `python -m tests.faces.cli.transcripts [--update] [NAME…]` prints differences, or writes them."""

from __future__ import annotations

import difflib
import sys
import tempfile
from pathlib import Path

from tests.faces.cli.transcripts.transcript import FOLDER, NAMES, play


def difference(name: str, directory: Path, *, update: bool) -> str:
    """Play one; return its differences as a patch."""
    file = FOLDER / f"{name}.txt"
    before = file.read_text()
    after = play(before, directory)
    if update:
        file.write_text(after)
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), str(file), "now", n=1, lineterm="")
    return "\n".join(lines)


def main() -> int:
    """Return 1 when something differs."""
    update, names = "--update" in sys.argv, [word for word in sys.argv[1:] if word != "--update"]
    differences = []
    for name in names or NAMES:
        with tempfile.TemporaryDirectory() as directory:
            differences.append(difference(name, Path(directory), update=update))
        print(differences[-1] or f"{name}: as written", flush=True)
    return int(any(differences))


if __name__ == "__main__":
    sys.exit(main())
