"""Pages as a browser's parser has them: elements with their attributes and text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset(["base", "br", "hr", "img", "input", "link", "meta"])


@dataclass
class Element:
    """One element."""

    tag: str
    attributes: dict[str, str | None]
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Its text, with that of the elements in it; white space is one blank."""
        parts = (child if isinstance(child, str) else child.text for child in self.children)
        return " ".join("".join(parts).split())

    def all(self, tag: str = "", css: str = "") -> Iterator[Element]:
        """Yield the elements in it of a tag, and of a class."""
        for child in self.children:
            if isinstance(child, Element):
                if tag in ("", child.tag) and (not css or css in (child.attributes.get("class") or "").split()):
                    yield child
                yield from child.all(tag, css)

    def by_id(self, name: str) -> Element:
        """The one element with an id."""
        (found,) = (each for each in self.all() if each.attributes.get("id") == name)
        return found

    def rows(self) -> list[list[str]]:
        """The cells of its tables' bodies."""
        return [[cell.text for cell in row.children if isinstance(cell, Element)] for row in self._rows()]

    def _rows(self) -> Iterator[Element]:
        for body in self.all("tbody"):
            yield from body.all("tr")

    def pairs(self) -> list[tuple[str, str]]:
        """Labels and their texts."""
        labels = [each.text for each in self.all("dt")]
        return list(zip(labels, (each.text for each in self.all("dd")), strict=True))

    def facts(self) -> dict[str, str]:
        """The same; of a label that is there twice, the last text."""
        return dict(self.pairs())


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute of {tag} is there twice"
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> ends <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parsed(html: str) -> Element:
    """The document; an assertion where elements are not closed in order."""
    builder = _Builder()
    builder.feed(html)
    builder.close()
    assert builder.open == [builder.root], "elements are not closed"
    return builder.root
