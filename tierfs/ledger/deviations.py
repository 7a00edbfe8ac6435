"""Deviations: bytes that a reader accepts although no writer should have written them."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_MESSAGES = 100
"""Kept in words, a guess: an object can deviate in each of its entries, and has millions."""


@dataclass(slots=True)
class Deviations:
    """The first deviations of an object in words, and how many there are in all."""

    messages: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, message: str) -> None:
        """Note one more."""
        self.count += 1
        if len(self.messages) < MAX_MESSAGES:
            self.messages.append(message)
