"""Where lines begin and end in bytes: LF, CRLF and CR as Spark's text reader has them, or one separator. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tierfs.errors import InvalidRequest

_LF = b"\n"
_CR = b"\r"
_LF_BYTE = 0x0A
_CR_BYTE = 0x0D


@dataclass(frozen=True, slots=True)
class Separator:
    """What ends a line; without `text` each of LF, CRLF and CR does."""

    text: bytes | None = None

    @classmethod
    def of(cls, option: str | None, encoding: str = "utf-8") -> Separator:
        """The option lineSep, in the text's encoding. Raises InvalidRequest for an empty one."""
        if option is None:
            return cls()
        if not option:
            raise InvalidRequest("lineSep is empty", remedy="leave it out: LF, CRLF and CR end lines then")
        return cls(option.encode(encoding))

    @property
    def before_bytes(self) -> int:
        """How far in front of an offset one has to look to know whether a line begins there."""
        return 1 if self.text is None else len(self.text)

    @property
    def may_be_split(self) -> bool:
        """Whether occurrences never overlap, so that they are the same wherever the search begins."""
        text = self.text
        return text is None or not any(text[:size] == text[-size:] for size in range(1, len(text)))

    def first_start(self, data: bytes, *, final: bool) -> int | None:
        """Where in `data` the first line begins that does so behind the first `before_bytes`; None: not in here.

        `data` begins `before_bytes` in front of the offset in question; `final`: nothing comes after it.
        """
        if self.text is not None:
            at = data.find(self.text)
            return None if at < 0 else at + len(self.text)
        lf, cr = data.find(_LF), data.find(_CR)
        if cr < 0 or 0 <= lf < cr:
            return None if lf < 0 else lf + 1
        if cr + 1 < len(data):
            return cr + 2 if data[cr + 1] == _LF_BYTE else cr + 1
        return cr + 1 if final else None

    def complete_bytes(self, data: bytes, *, final: bool) -> int:
        """How many bytes at the start of `data` are whole lines with their ends.

        A CR at the end may be half of a CRLF, unless `final`.
        """
        if self.text is not None:
            return self._complete_of_text(data)
        end = len(data) if final or not data.endswith(_CR) else len(data) - 1
        return max(data.rfind(_LF, 0, end), data.rfind(_CR, 0, end)) + 1

    def _complete_of_text(self, data: bytes) -> int:
        assert self.text is not None
        if self.may_be_split:
            return data.rfind(self.text) + len(self.text) if self.text in data else 0
        at = 0
        while (found := data.find(self.text, at)) >= 0:  # from the left: a search from the right finds others
            at = found + len(self.text)
        return at

    def without_end(self, line: bytes) -> bytes:
        """A line without what ends it."""
        if self.text is not None:
            return line.removesuffix(self.text)
        return line.removesuffix(_LF).removesuffix(_CR) if line.endswith(_LF) else line.removesuffix(_CR)
