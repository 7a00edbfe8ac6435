"""Running the code blocks of a document, in order, as a reader would.

A `python` block runs in a namespace that all of a document share. A `console` block holds commands behind `$ `, each
with the lines that it prints. A `text` block is what the block before it prints; `…` in it stands for anything.
Blocks of other languages, and of none, are not run.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
COMMAND_S = 100

_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block; `line` is that of its first line in the document."""

    language: str
    text: str
    line: int


def blocks_of(document: str) -> Iterator[Block]:
    """All fenced blocks of a document's text."""
    for match in _FENCE.finditer(document):
        yield Block(match["language"], match["text"], document.count("\n", 0, match.start("text")) + 1)


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
        self._replace = replace or {}
        self._env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **(env or {})}
        self.names: dict[str, Any] = {"__name__": "__main__", **(names or {})}
        self._printed = ""

    def run(self) -> int:
        """Run all blocks; returns how many. Raises AssertionError naming the line where one prints something else."""
        document = self._path.read_text()
        for original, here in self._replace.items():
            document = document.replace(original, here)
        done = 0
        with contextlib.chdir(self._directory):
            for block in blocks_of(document):
                done += self._run(block)
        return done

    def _run(self, block: Block) -> bool:
        if block.language == "python":
            self._printed = self._python(block)
        elif block.language == "console":
            self._printed = self._console(block)
        elif block.language == "text":
            self._compare(block.text, self._printed, block.line)
        return block.language in ("python", "console")

    def _python(self, block: Block) -> str:
        code = compile("\n" * (block.line - 1) + block.text, str(self._path), "exec")  # tracebacks name its lines
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, self.names)
        return out.getvalue()

    def _console(self, block: Block) -> str:
        printed = ""
        for command, expected in commands_of(block.text):
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", command],
                env=self._env,
                capture_output=True,
                text=True,
                timeout=COMMAND_S,
                check=False,
            )
            assert done.returncode == 0, f"{self._path.name}:{block.line}: {command}\n{done.stdout}{done.stderr}"
            printed += done.stdout
            if expected:
                self._compare(expected, done.stdout, block.line)
        return printed

    def _compare(self, expected: str, printed: str, line: int) -> None:
        pattern = ".*".join(map(re.escape, expected.strip("\n").split("…")))
        same = re.fullmatch(pattern, printed.strip("\n"), re.DOTALL)
        assert same, f"{self._path.name}:{line} promises\n{expected}\nand this is printed:\n{printed}"


def commands_of(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, with their lines behind `> ` or a backslash, and what each prints."""
    command, expected = "", ""
    for line in text.splitlines(keepends=True):
        if line.startswith("$ "):
            if command:
                yield command, expected
            command, expected = line[2:], ""
        elif command.endswith("\\\n") and not expected:
            command += line.removeprefix("> ")
        else:
            expected += line
    if command:
        yield command, expected
