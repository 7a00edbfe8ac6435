"""Steps of a life: each is drawn to a record of verb and arguments first, so that a list of them is a life again."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.simulation.storage import Fault, Toxic

if TYPE_CHECKING:
    from tests.simulation.world import World

Arguments = dict[str, Any]


@dataclass(frozen=True, slots=True)
class End:
    """The death of the process within a step."""

    point: int
    """The number of the point at which it dies; behind the last one it dies after the step."""
    power: int | None = None
    """Draws what the disk keeps; None: only the process ends."""


@dataclass(frozen=True, slots=True)
class Step:
    """One verb with its arguments."""

    verb: str
    arguments: Arguments
    fault: Fault | None = None
    end: End | None = None
    look: int = 0
    """Draws what is read beside and after it."""

    def written(self) -> str:
        """Return it as one line."""
        record: dict[str, Any] = {"verb": self.verb, **self.arguments, "look": self.look}
        if self.fault is not None:
            record["fault"] = [self.fault.call, str(self.fault.toxic), self.fault.steps]
        if self.end is not None:
            record["end"] = [self.end.point, self.end.power]
        return json.dumps(record)

    @classmethod
    def parse(cls, line: str) -> Step:
        """Return the step of a line."""
        record = json.loads(line)
        fault, end = record.pop("fault", None), record.pop("end", None)
        look = record.pop("look")
        return cls(
            record.pop("verb"),
            record,
            None if fault is None else Fault(fault[0], Toxic(fault[1]), fault[2]),
            None if end is None else End(*end),
            look,
        )

    def ends(self, end: End | None) -> Step:
        """Return it with another end."""
        return replace(self, end=end)


class NothingToDo(Exception):
    """The verb cannot be done now: other steps made that so, which a shorter life may lack."""


Run = Callable[["World", Arguments], None]


@dataclass(frozen=True, slots=True)
class Verb:
    """A kind of step."""

    name: str
    weight: int
    draw: Callable[[World, random.Random], Arguments]
    run: Run
    calls_storage: bool = False
    """Whether a fault of the storage is drawn with it."""
    damages: bool = False
    """Whether it is drawn only in lives whose files and objects rot."""
    archives: bool = False
    """Whether it is drawn only in lives whose objects are in several storage classes."""
    ends: bool = False
    """Whether the process ends in it, so that nothing reads beside it."""
    afterwards: Callable[[World], None] = lambda _: None
    """Follows what the store did by itself, also when the process died."""


VERBS: dict[str, Verb] = {}


def verb(weight: int, draw: Callable[[World, random.Random], Arguments], **marks: Any) -> Callable[[Run], Run]:
    """Enter a function into the table of verbs, under its name, with marks of Verb. Both raise NothingToDo."""

    def enter(run: Run) -> Run:
        VERBS[run.__name__] = Verb(run.__name__, weight, draw, run, **marks)
        return run

    return enter


def written(steps: Iterable[Step]) -> str:
    """Return steps as a file of lines."""
    return "".join(f"{step.written()}\n" for step in steps)
