"""The range of numbers that each store epoch has for itself.

A lost owner may have used ids, slots and sequences that no later owner can see (objects that it created and never
published, a journal that is gone); a later epoch begins beyond all of them.
"""

from __future__ import annotations

# Bits of a number within its epoch: 136 years of one id, slot or change per second.
_NUMBER_BITS = 32

# More owners than there can have been; the ranges of a few more still end below 2^63.
MAX_EPOCH = 2**31 - 32


def first_of(epoch: int) -> int:
    """Return the first number of an epoch."""
    return epoch << _NUMBER_BITS


def epoch_of(number: int) -> int:
    """Return the epoch in whose range a number lies; that of the first owner's numbers is 0."""
    return number >> _NUMBER_BITS
