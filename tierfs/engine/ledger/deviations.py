"""*Deviations*: bytes that a reader accepts although no writer should have written them."""

from __future__ import annotations

from tierfs.base.bytes.frozen import dataclass, field

# Messages kept per object, a guess: an object can deviate in each of its millions of entries.
MAX_MESSAGES = 100


@dataclass(slots=True)
class Deviations:
    """Messages of the first deviations of an object, and the number of all."""

    messages: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, message: str) -> None:
        """Note one more deviation."""
        self.count += 1
        if len(self.messages) < MAX_MESSAGES:
            self.messages.append(message)
