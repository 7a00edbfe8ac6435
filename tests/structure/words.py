"""The words that texts for users do not have, each with the ones to write: one list for documents, help and messages.

Each of them is correct English, and is read twice by a person whose second language it is. A pattern takes only the use
that is refused: `hold` is one and `the holder` is a term, `before` is refused of no time, `ends with` passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

THE_COMPONENT = "name the component: the mount, the holder, the caller, the server"

INSTEAD: tuple[tuple[str, str], ...] = (
    (r"told|tells?|telling", "report, print, record, notify; of two things: distinguish"),
    (r"asks?|asked|asking", "request, query, check, need; of a person: prompt"),
    (r"(?<!legal )(?:holds?|held|holding)", "keep, own, lock, store, contain, have"),
    (r"mend(?:s|ed|ing)?", "repair, fix"),
    (r"(?<!lag )(?<!lags )(?<!fall )(?<!falls )(?<!far )behind(?! (?:a|the) (?:proxy|firewall|load))", "after, below"),
    (r"besides?", "next to, alongside, during, in addition to"),
    (r"side by side", "in parallel, next to each other"),
    (r"by now", "already, now"),
    (r"anew", "again, or a verb with re-: reopen, relink"),
    (r"for ?ever|for good", "permanently"),
    (r"all the same", "anyway"),
    (r"tried again|tries again", "retried, retries"),
    (r"(?:taken|brought|takes?|brings?) back", "restored, put back"),
    (r"(?:is|are|was|were|be|has|have|had|needs?|takes?|gives?|with|there) none", "no …, not a …, missing"),
    (r"as (?:it|they) (?:is|are|was|were)(?! \w+(?:ed|en)\b)", "unchanged, in place"),
    (r"lies|lay|lying", "is stored, is"),
    (r"stands?|stood|standing", "is stored, is listed; of a sign: means"),
    (r"(?:go|goes|went|going|gone) on", "continue"),
    (r"comes? by|came by", "arrive, reach"),
    (r"begins?|began|begun|beginning", "start"),
    (r"(?:left|leaves?|leaving) out", "skip, omit"),
    (r"(?:left|leaves?) (?:alone|aside|as)", "keep, skip, do not touch"),
    (r"names (?:the|an?|its?|them|both|each|every|all|no|one|what|those|these|this)", "list, refer to, specify, show"),
    (r"naming", "with, by name, listing"),
    (r"strangers?", "an unauthenticated client, another program"),
    (r"(?:is|are|was|were|be|been) said", "report, print"),
    (r"whoever|(?:any|no|some)body", THE_COMPONENT),
    (r"whatever", "any, all, independent of"),
    (r"(?<![^.;:|] )(?:What|Who)\b(?![^.]*\?)", THE_COMPONENT),
    (r"[;:,] what", "the thing by its name"),
)
"""A refused use, as a regular expression of whole words (in any case unless it has capitals), and what to write."""

_REFUSED = tuple(
    (re.compile(rf"(?<!\w)(?:{use})(?!\w)", re.IGNORECASE if use.islower() else 0), words) for use, words in INSTEAD
)


def refused(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield each refused use in a text: where it starts, its words, and what to write instead."""
    for pattern, words in _REFUSED:
        for use in pattern.finditer(text):
            yield use.start(), use[0], words
