"""The expected contents of segments, in memory, beside a store that is changed by commands only."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.commands import Done, tierfs

NAMES = [f"{directory}{letter}" for directory in ("", "d/", "d/e/") for letter in "abc"]
LARGEST_APPEND = 40_000


@dataclass(slots=True)
class Expected:
    """One segment: all bytes it ever had, and how many of them were cut off."""

    data: bytearray = field(default_factory=bytearray)
    start: int = 0
    sealed: bool = False

    @property
    def readable(self) -> bytes:
        return bytes(self.data[self.start :])


class World:
    """A store and the memory of it. Every verb goes through the command line."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.segments: dict[str, Expected] = {}
        self.random = random.Random(seed)
        self.steps: list[str] = []

    def command(self, *words: object, stdin: bytes = b"") -> Done:
        """Run one that must succeed."""
        self.steps.append(" ".join(map(str, words)))
        done = tierfs("-q", *words, store=self.path, stdin=stdin, check=False)
        assert done.code == 0, (done, self.steps)
        return done

    def step(self) -> None:
        """One verb, chosen at random among those that can be done now."""
        self.random.choices([verb for verb, _ in VERBS], [weight for _, weight in VERBS])[0](self)

    def any(self, *, sealed: bool | None = None) -> str | None:
        """Return an existing segment."""
        found = [name for name, one in self.segments.items() if sealed is None or one.sealed is sealed]
        return self.random.choice(found) if found else None


def append(world: World) -> None:
    free = [name for name in NAMES if name not in world.segments or not world.segments[name].sealed]
    if not free:
        return
    name, seal = world.random.choice(free), world.random.random() < 0.2
    data = world.random.randbytes(world.random.randrange(LARGEST_APPEND))
    expected = world.segments.setdefault(name, Expected())
    options = ["--expect-offset", len(expected.data), *(["--seal"] if seal else [])]
    world.command("append", name, *options, stdin=data)
    expected.data += data
    expected.sealed = seal


def seal(world: World) -> None:
    if name := world.any():
        world.command("seal", name)
        world.segments[name].sealed = True


def unseal(world: World) -> None:
    if name := world.any():
        world.command("unseal", name)
        world.segments[name].sealed = False


def truncate(world: World) -> None:
    if name := world.any():
        expected = world.segments[name]
        before = world.random.randint(0, len(expected.data))
        world.command("trim", name, "--before", before, "--yes")
        expected.start = max(expected.start, before)


def concat(world: World) -> None:
    target, source = world.any(sealed=False), world.any(sealed=True)
    if target and source:
        world.command("concat", target, source, "--yes")
        world.segments[target].data += world.segments.pop(source).readable


def clone(world: World) -> None:
    source = world.any()
    if source and (name := f"clones/{world.random.randrange(100)}") not in world.segments:
        copied = world.segments[source]
        end = world.random.randint(copied.start, len(copied.data))
        world.command("clone", source, name, "--to", end)
        world.segments[name] = replace(copied, data=copied.data[:end], sealed=False)


def rm(world: World) -> None:
    if name := world.any():
        world.command("rm", name, "--yes")
        del world.segments[name]


def rm_directory(world: World) -> None:
    inside = [name for name in world.segments if name.startswith("d/e/")]
    if inside:
        world.command("rm", "-r", "d/e", "--yes")
        for name in inside:
            del world.segments[name]


def offload(world: World) -> None:
    world.command("offload", world.any() or "")


def evict(world: World) -> None:
    world.command("evict", world.any() or "")


def consolidate(world: World) -> None:
    world.command("consolidate", world.any() or "")


def collect(world: World) -> None:
    world.command("gc", "--delete")


def restore(world: World) -> None:
    """A wrong rm, undone: out of the trash, or after its end by a dump."""
    if name := world.any():
        world.command("rm", name, "--yes")
        world.command("restore", name)
        world.command("offload", name)
        world.command("backup", "--to-bucket", name)
        world.command("rm", name, "--now", "--yes")
        world.command("restore", "--from-bucket", name)  # the trash may have an older segment of that name


def verify(world: World) -> None:
    world.command("check", world.any() or "/")


VERBS = [
    (append, 8),
    (seal, 2),
    (unseal, 1),
    (truncate, 2),
    (concat, 2),
    (clone, 2),
    (rm, 1),
    (rm_directory, 1),
    (offload, 3),
    (evict, 2),
    (consolidate, 1),
    (collect, 1),
    (verify, 1),
    (restore, 1),
]
