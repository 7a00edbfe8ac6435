"""Running the code blocks of a document, in order, as a reader would.

A `python` block runs in a namespace that all of a document share. `sh` and `console` blocks are typed into one shell of
the document, a command after another, and each has to succeed; in a `console` block commands are behind `$ `, each with
the lines that it prints. A `text` block is what the block before it prints; `…` in it stands for anything. A command
with the comment `until Ctrl-C` is interrupted once it printed something. Blocks of other languages, and of none, are
not run, and neither is a block behind the line `<!-- not run: REASON -->`. A reader may also do a single section.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.docs.shell import INSTALLED_TIERFS, Ended, Shell, is_whole

ROOT = Path(__file__).parents[2]

COMMANDS = ("sh", "console")
RUN = (*COMMANDS, "python")

_FENCE = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_MARKER = "not run"


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block; `line` is that of its first line in the document."""

    language: str
    text: str
    line: int
    not_run: str = ""
    """The reason for which it is not run."""


def blocks_of(document: str) -> list[Block]:
    """All fenced blocks of a document's text. Raises AssertionError for a marker without a reason or a block."""
    blocks = [
        Block(match["language"], match["text"], document.count("\n", 0, match.start("text")) + 1, match["why"] or "")
        for match in _FENCE.finditer(document)
    ]
    markers, marked = document.count(f"<!-- {_MARKER}"), sum(bool(block.not_run) for block in blocks)
    assert markers == marked, f"of {markers} markers `{_MARKER}` {marked} have a reason and a block below them"
    return blocks


def sections_of(document: str) -> dict[str, tuple[int, int]]:
    """Return the range of lines of each section below a title of the second level."""
    lines = document.splitlines()
    starts = [number for number, line in enumerate(lines, 1) if line.startswith("## ")]
    ends = [*starts[1:], len(lines) + 1]
    return {lines[start - 1][3:]: (start, end) for start, end in zip(starts, ends, strict=True)}


def lines_of(document: str, section: str | None) -> tuple[int, int]:
    """Return the range of lines of a section, of the whole document without one."""
    return (0, document.count("\n") + 2) if section is None else sections_of(document)[section]


class Reader:
    """Does what a document says, and compares what it promises."""

    def __init__(
        self,
        path: Path,
        directory: Path,
        *,
        replace: Mapping[str, str] | None = None,
        names: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`replace` are texts of the document that stand for others here, such as paths; commands run in `directory`.

        `names` are there for the Python blocks, and `env` is added to the environment of the commands.
        """
        self._path = path
        self._directory = directory
        self._replace = {"": "", **(replace or {})}
        programs = os.environ.get(INSTALLED_TIERFS, Path(sys.executable).parent)
        self._env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", **(env or {})}
        self.names: dict[str, Any] = {"__name__": "__main__", **(names or {})}
        self._printed = ""

    def run(self, section: str | None = None) -> int:
        """Run all blocks, or those of the section with this title; returns how many.

        Raises AssertionError naming the line where one prints something else.
        """
        longest_first = "|".join(re.escape(text) for text in sorted(self._replace, key=len, reverse=True))
        document = re.sub(longest_first, lambda match: self._replace[match[0]], self._path.read_text())
        start, end = lines_of(document, section)
        done = 0
        with contextlib.chdir(self._directory), Shell(self._directory, self._env) as shell:
            for block in blocks_of(document):
                if not start <= block.line < end:
                    continue
                done += not block.not_run and self._run(block, shell)
        return done

    def _run(self, block: Block, shell: Shell) -> bool:
        if block.language == "python":
            self._printed = self._python(block)
        elif block.language in COMMANDS:
            self._printed = self._type(block, shell)
        elif block.language == "text":
            self._compare(block.text, self._printed, block.line)
        return block.language in RUN

    def _python(self, block: Block) -> str:
        code = compile("\n" * (block.line - 1) + block.text, str(self._path), "exec")  # tracebacks name its lines
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, self.names)
        return out.getvalue()

    def _type(self, block: Block, shell: Shell) -> str:
        printed = ""
        commands = prompted(block) if block.language == "console" else typed(block)
        for command in commands:
            done = self.do(command.text, shell)
            assert done.code == 0, (
                f"{self._path.name}:{command.line}: {command.text}\nends with {done.code}:\n{done.out}{done.error}"
            )
            printed += done.out
            if command.prints:
                self._compare(command.prints, done.out + done.error, command.line, done.error + done.out)
        return printed

    def do(self, command: str, shell: Shell) -> Ended:
        """Type one command into the shell; another reader may do some of them otherwise."""
        return shell.run(command)

    def _compare(self, expected: str, printed: str, line: int, *or_else: str) -> None:
        """Compare with what was printed; `or_else` is the same in another order of both streams."""
        pattern = ".*".join(map(re.escape, expected.strip("\n").split("…")))
        same = any(re.fullmatch(pattern, each.strip("\n"), re.DOTALL) for each in (printed, *or_else))
        assert same, f"{self._path.name}:{line} promises\n{expected}\nand this is printed:\n{printed}"


@dataclass(frozen=True, slots=True)
class Typed:
    """One command of a block, and what it prints; `line` is that of its first line in the document."""

    text: str
    line: int
    prints: str = ""


def prompted(block: Block) -> Iterator[Typed]:
    """The commands of a console block, with their lines behind `> ` or a backslash, and what each prints."""
    command, expected, line = "", "", block.line
    for number, text in enumerate(block.text.splitlines(keepends=True), block.line):
        if text.startswith("$ "):
            if command:
                yield Typed(command, line, expected)
            command, expected, line = text[2:], "", number
        elif not expected and (command.endswith("\\\n") or (command and text.startswith("> "))):
            command += text.removeprefix("> ")
        else:
            expected += text
    if command:
        yield Typed(command, line, expected)


def typed(block: Block) -> Iterator[Typed]:
    """The commands of a block of the shell: as many lines each as the shell takes for one."""
    command, line = "", block.line
    for number, text in enumerate(block.text.splitlines(keepends=True), block.line):
        if not command and not text.partition("#")[0].strip():
            continue
        line = line if command else number
        command += text
        if is_whole(command):
            yield Typed(command, line)
            command = ""
    assert not command, f"no end of: {command}"
