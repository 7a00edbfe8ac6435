"""The policy of a pack: those of its segments, which agree on whether its bytes are compressed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from tierfs.base.options.policy import Policy
from tierfs.base.words.types import Compression

T = TypeVar("T")


def by_compression(items: Iterable[T], policy_of: Callable[[T], Policy]) -> list[list[T]]:
    """Return the items that may share a pack together, in their order: one or two groups."""
    groups: dict[bool, list[T]] = {}
    for item in items:
        groups.setdefault(policy_of(item).compresses, []).append(item)
    return list(groups.values())


def of_pack(policies: Iterable[Policy]) -> Policy:
    """Return the policy of a pack of segments with these policies, of one group: what compresses most."""
    each = list(policies)
    wishes = {policy.compression for policy in each}
    level = max((policy.compression_level for policy in each), default=Policy().compression_level)
    wish = next((wish for wish in (Compression.ZSTD, Compression.AUTO) if wish in wishes), Compression.OFF)
    return replace(Policy(), compression=wish, compression_level=level)
