"""Random verbs on a test store, and what of every segment must be readable after a loss."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.stores import TestStore
from tierfs.engine.segments import trash
from tierfs.engine.segments.clone import clone

VERBS = (
    *("append", "append", "append", "offload", "offload", "evict", "seal", "unseal", "concat", "clone"),
    *("truncate", "consolidate", "delete", "remove", "restore", "crash"),
)


@dataclass(slots=True)
class Content:
    """One segment: all bytes it ever had, from offset 0 on."""

    data: bytearray = field(default_factory=bytearray)
    start: int = 0
    sealed: bool = False


@dataclass(slots=True)
class Life:
    """A store and the model of it."""

    store: TestStore
    chosen: random.Random
    live: dict[str, Content] = field(default_factory=dict)
    removed: dict[str, Content] = field(default_factory=dict)
    """By name: the newest removals in the trash."""
    ever: dict[int, Content] = field(default_factory=dict)
    """By segment id, those that are gone included: the byte at an offset never changes."""

    def run(self, steps: int, verbs: tuple[str, ...]) -> None:
        """Do so many verbs, then publish and collect."""
        for _ in range(steps):
            name = f"d{self.chosen.randrange(2)}/s{self.chosen.randrange(3)}"
            verb = self.chosen.choice(verbs)
            if verb == "append":
                self._append(name)
            elif verb in ("offload", "evict", "crash", "checkpoint", "consolidate"):
                self._on_all(verb)
            elif verb == "restore" and name in self.removed and name not in self.live:
                trash.restore(self.store.metadata, name)
                self.live[name] = self.removed.pop(name)
            elif name in self.live and verb != "restore":
                self._on_one(verb, name, self.live[name])
        self.store.settle()

    def _append(self, name: str) -> None:
        content = self.live.get(name)
        if content is not None and content.sealed:
            return
        piece = self.chosen.randbytes(self.chosen.randrange(1, 14))
        self.store.append(name, piece)
        if content is None:
            content = self.live[name] = self.ever[self.store.segment(name).id] = Content()
        content.data += piece

    def _on_all(self, verb: str) -> None:
        if verb == "offload":
            self.store.offload()
        elif verb == "evict":
            self.store.evict()
        elif verb == "consolidate":
            self.store.consolidate()
        elif verb == "checkpoint":
            self.store.cold_work().checkpointer.checkpoint()
        else:
            self.store.reopen()

    def _on_one(self, verb: str, name: str, content: Content) -> None:
        engine, due_ms = self.store.engine, self.store.clock.now_ms() + self.chosen.randrange(3)
        if verb == "seal":
            engine.seal(name)
            content.sealed = True
        elif verb == "unseal":
            engine.unseal(name)
            content.sealed = False
        elif verb == "truncate":
            content.start = self.chosen.randrange(content.start, len(content.data) + 1)
            engine.truncate(name, content.start, cold_due_ms=due_ms)
        elif verb == "concat":
            self._concat(name, content)
        elif verb == "clone":
            self._clone(name, content)
        else:
            engine.delete(name, recursive=False, cold_due_ms=due_ms, to_trash=verb == "remove")
            content = self.live.pop(name)
            if verb == "remove":
                self.removed[name] = content

    def _clone(self, name: str, content: Content) -> None:
        target = f"{name[:3]}{self.chosen.randrange(3)}"
        if target not in self.live:
            end = self.chosen.randint(content.start, len(content.data))
            clone(self.store.metadata, name, target, end=end)
            copied = self.live[target] = Content(content.data[:end], content.start)
            self.ever[self.store.segment(target).id] = copied

    def _concat(self, name: str, content: Content) -> None:
        source = self.live.get("d0/s0")
        if source is None or source is content or not source.sealed or content.sealed:
            return
        self._on_all("offload")  # else there is a gap in the cold chain, which is another test
        self.store.engine.concat(name, "d0/s0")
        content.data += source.data[source.start :]
        del self.live["d0/s0"]
