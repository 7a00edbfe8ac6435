"""Make docs/pictures: terminals with `info --map` and `top`, of a real store and a real mount.

`python -m tests.docs.pictures` writes them; it needs /dev/fuse. A picture is an SVG with the text of the terminal, in
the fonts of the reader's machine.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.docs.blocks import ROOT

PICTURES = ROOT / "docs/pictures"
COLUMNS, ROWS = 100, 18
MIB = 1 << 20
PIECE, PAUSE_S = MIB // 8, 0.02
"""Of a reader, so that it is still among cold bytes when it is drawn."""
HOME = b"\x1b[H"
"""Before each frame of a program that fills the terminal."""
QUIT = b"q"
NO_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-LN-Za-ln-z]|\x1b[()=>][0-9A-Z]?|\r")
"""Sequences that move the cursor or switch the screen; those of colours end with m."""

_FRAME = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
<rect fill="#0c0c0c" width="{width}" height="{height}" rx="8"/>
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


class Terminal:
    """A store in a directory, and commands of it on a terminal."""

    def __init__(self, directory: Path) -> None:
        program = Path(sys.executable).parent
        self._directory = directory
        self._env = {**os.environ, "TIERFS_STORE": "store", "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self._env["PATH"] = f"{program}:{os.environ['PATH']}"
        self._env |= {"COLUMNS": str(COLUMNS), "LINES": str(ROWS)}

    def run(self, *words: str, stdin: bytes = b"") -> None:
        """Run a command without a terminal."""
        subprocess.run(["tierfs", "-q", *words], cwd=self._directory, env=self._env, input=stdin, check=True)

    def screen(self, *words: str, frames: int = 0) -> str:
        """Run a command on a terminal; return all that it printed, or its last frame when so many were drawn."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        with subprocess.Popen(["tierfs", *words], cwd=self._directory, env=self._env, stdin=theirs, stdout=theirs):
            os.close(theirs)
            printed = b""
            for data in _until_end(ours):
                printed += data
                if frames and printed.count(HOME) > frames:
                    break
            os.write(ours, QUIT * bool(frames))
            for _ in _until_end(ours):
                pass
        os.close(ours)
        drawn = printed.split(HOME)
        return NO_STYLE.sub("", (drawn[-2] if frames else drawn[-1]).decode()).strip("\n")


def _until_end(fd: int) -> Iterator[bytes]:
    with suppress(OSError):  # EIO: the other end is closed
        while data := os.read(fd, MIB):
            yield data


def draw(name: str, command: str, text: str) -> None:
    """Write a picture of a command and what it printed."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi(f"$ {command}\n{text.rstrip()}"))
    svg = console.export_svg(theme=MONOKAI, code_format=_FRAME, unique_id=name)
    (PICTURES / f"{name}.svg").write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n")


@contextmanager
def readers(files: Sequence[Path]) -> Iterator[None]:
    """Read files over and over, as long as the block lasts."""
    ends = threading.Event()

    def read(path: Path) -> None:
        while not ends.is_set():
            with path.open("rb", buffering=0) as file:
                while not ends.is_set() and file.read(PIECE):
                    ends.wait(PAUSE_S)

    threads = [threading.Thread(target=read, args=(path,)) for path in files]
    for thread in threads:
        thread.start()
    yield
    ends.set()
    for thread in threads:
        thread.join()


def main() -> None:
    """Make a store in which bytes are in each tier, and draw it."""
    PICTURES.mkdir(exist_ok=True)
    with TemporaryDirectory() as work:
        directory = Path(work)
        for name in ("cold", "mnt"):
            (directory / name).mkdir()
        terminal = Terminal(directory)
        terminal.run("init", "--cold-dir", "cold")
        terminal.run("config", "/", "chunk_bytes=4MiB", "object_bytes=16MiB", "deletion_lag=1d")
        for name, length in {"logs/web": 90 * MIB, "logs/db": 70 * MIB}.items():
            terminal.run("append", name, stdin=b"a line of a log\n" * (length // 16))
        terminal.run("offload", "logs", "--keep", "20MiB")
        terminal.run("evict", "logs", "--keep", "40MiB")
        draw("map", "tierfs info --map logs/web", terminal.screen("info", "--map", "logs/web"))
        terminal.run("mount", "mnt")
        try:
            with readers([directory / "mnt/logs/web", directory / "mnt/logs/db"]):
                frame = terminal.screen("top", "-d", "500ms", str(directory / "mnt"), frames=10)
        finally:
            terminal.run("umount", "mnt")
        draw(
            "top",
            "tierfs top /mnt/logs",
            frame.replace(f"{directory}/mnt", "/mnt/logs").replace(str(directory), "/srv"),
        )


if __name__ == "__main__":
    main()
