"""The lines whose loss would destroy or falsify bytes, as `lines/*.toml` name them, a file for each room."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES = Path(__file__).parent / "lines"
INVARIANTS = range(1, 19)
"""The numbers of the promises in docs/reliability.md."""


@dataclass(frozen=True, slots=True)
class SafetyLine:
    """A piece of code that stands once in its file, and what takes its effect away."""

    file: str
    """Below tierfs/."""
    old: str
    new: str
    loses: str
    """What would happen without it, in words; no two lines lose the same."""
    invariant: int
    killer: str = ""
    """The test that fails without the line: a node id of pytest, or one without its parameters."""

    @property
    def path(self) -> Path:
        return ROOT / "tierfs" / self.file

    @property
    def module(self) -> str:
        return ".".join(("tierfs", *Path(self.file).with_suffix("").parts)).removesuffix(".__init__")

    def mutated(self) -> str:
        """Return the file's text without the line's effect."""
        return self.path.read_text().replace(self.old, self.new)

    def line_number(self) -> int:
        """Return where the code that changes begins, counted from 1."""
        text = self.path.read_text()
        same = next(at for at, (a, b) in enumerate(zip(self.old + "\0", self.new + "\1", strict=False)) if a != b)
        at = text.index(self.old) + same
        return text.count("\n", 0, at + len(text[at:]) - len(text[at:].lstrip())) + 1


def read_ledger() -> list[SafetyLine]:
    """Return all lines; in the order of files and of lines within them."""
    return [
        SafetyLine(**row) for path in sorted(LINES.glob("*.toml")) for row in tomllib.loads(path.read_text())["line"]
    ]


def wrong(lines: list[SafetyLine]) -> list[str]:
    """Return what of a ledger does not fit the code, in a sentence each."""
    said: list[str] = []
    for number, line in enumerate(lines):
        count = line.path.read_text().count(line.old) if line.path.exists() else 0
        if count != 1:
            said.append(f"{line.file}: the code of {line.loses!r} is there {count} times, not once: {line.old!r}")
        if line.old == line.new:
            said.append(f"{line.file}: {line.loses!r} changes nothing")
        if line.invariant not in INVARIANTS:
            said.append(f"{line.file}: {line.loses!r} names no invariant")
        if any(
            line.loses == other.loses or (line.file, line.old, line.new) == (other.file, other.old, other.new)
            for other in lines[:number]
        ):
            said.append(f"{line.file}: {line.loses!r} stands twice")
    missing = set(INVARIANTS) - {line.invariant for line in lines}
    return [*said, *(f"no line holds invariant {number}" for number in sorted(missing))]


def note_killer(line: SafetyLine, killer: str) -> None:
    """Write a killer into the line's row, after what the line loses."""
    quote = "'''" if "'" in killer else "'"
    for path in LINES.glob("*.toml"):
        text = path.read_text()
        row = f'loses = "{line.loses}"\n'
        if row in text:
            path.write_text(text.replace(row, f"{row}killer = {quote}{killer}{quote}\n", 1))
            return
    raise LookupError(line.loses)
