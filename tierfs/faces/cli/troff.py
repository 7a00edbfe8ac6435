"""Text of manual pages, in the language of troff(1) with the macros of man(7)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from inspect import cleandoc

from tierfs import __version__

# click's mark of a paragraph that is not rewrapped.
_AS_IT_IS = "\b"


def title(name: str, section: int) -> str:
    """Return the first line of a page."""
    return f'.TH "{escaped(name.upper())}" {section} "" "tierfs {__version__}" "tierfs"'


def paragraphs(text: str) -> Iterator[str]:
    """Yield the lines of a text of paragraphs; one that starts with click's mark keeps its lines."""
    for paragraph in re.split(r"\n\s*\n", cleandoc(text)):
        lines = [escaped(line) for line in paragraph.splitlines()]
        yield ".PP"
        yield from (".nf", *lines[1:], ".fi") if paragraph.startswith(_AS_IT_IS) else lines


def items(terms: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the lines of a list of terms, each with its text."""
    for term, text in terms:
        yield from (".TP", f".B {escaped(term)}", escaped(" ".join(text.split())))


def escaped(text: str) -> str:
    """Escape text for troff."""
    shown = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{shown}" if shown.startswith((".", "'")) else shown
