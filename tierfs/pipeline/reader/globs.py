"""Globs of names as Hadoop writes them: `* ? [a-z] [^a-z] {a,b}`; a character after a backslash means itself."""

from __future__ import annotations

import re
from fnmatch import translate
from functools import lru_cache

from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable

_ESCAPED = re.compile(r"\\(.?)", re.DOTALL)
_SPECIAL = "*?[]{}\\,^!-"
# Control characters stand for escaped ones while a pattern is taken apart: no name holds them.
_MASKS = {character: chr(number) for number, character in enumerate(_SPECIAL, 1)}
_UNMASK = str.maketrans({mask: character for character, mask in _MASKS.items()})
_UNMASK_IN_PATTERN = str.maketrans({mask: f"\\{character}" for character, mask in _MASKS.items()})

_GLOB = frozenset("*?[{")
_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST_BRACES = 1000


def masked(pattern: str) -> str:
    """Return a pattern whose escaped characters are not special. Raises InvalidRequest for a last backslash."""

    def mask(escape: re.Match[str]) -> str:
        if not escape[1]:
            raise InvalidRequest(
                f"{printable(pattern)} ends with a single backslash", remedy="write \\\\ for a backslash"
            )
        return _MASKS.get(escape[1], escape[1])

    return _ESCAPED.sub(mask, pattern)


def unmasked(pattern: str) -> str:
    """Return the plain text of a masked pattern that is no glob."""
    return pattern.translate(_UNMASK)


def is_glob(pattern: str) -> bool:
    """Return whether a masked pattern may match several names."""
    return not _GLOB.isdisjoint(pattern)


def expanded(pattern: str) -> list[str]:
    """Return a masked pattern without braces for each alternative. Raises InvalidRequest for too many."""
    patterns = [pattern]
    while any("{" in pattern_ for pattern_ in patterns):
        grown: list[str] = []
        for pattern_ in patterns:
            braces = _BRACES.search(pattern_)
            if braces is None:
                if "{" in pattern_:
                    raise InvalidRequest(f"{printable(unmasked(pattern))}: missing closing brace")
                grown.append(pattern_)
                continue
            grown += [pattern_[: braces.start()] + part + pattern_[braces.end() :] for part in braces[1].split(",")]
        if len(grown) > _MOST_BRACES:
            raise InvalidRequest(f"{printable(unmasked(pattern))} expands to more than {_MOST_BRACES} patterns")
        patterns = grown
    return patterns


@lru_cache(maxsize=256)
def matcher(pattern: str) -> re.Pattern[str]:
    """Return the matcher of a masked glob of one component; `[!a]` and Hadoop's `[^a]` mean the same."""
    alternatives = "|".join(translate(glob.replace("[^", "[!")) for glob in expanded(pattern))
    return re.compile(alternatives.translate(_UNMASK_IN_PATTERN))
