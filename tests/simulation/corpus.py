"""Lives that failed once: they are lived first, in every run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.lives import Life
from tests.simulation.steps import Step, written

PATH = Path(__file__).with_name("corpus.txt")

_SEED = "seed "


@dataclass(frozen=True, slots=True)
class Kept:
    """One life of the corpus: its seed, its steps, and the defect that it showed."""

    seed: int
    steps: tuple[Step, ...]
    about: str

    def written(self) -> str:
        """Return it as it stands in the corpus."""
        return f"# {self.about}\n{_SEED}{self.seed}\n{written(self.steps)}\n"


def read(path: Path = PATH) -> Iterator[Kept]:
    """Yield the lives of a corpus."""
    for block in path.read_text().split("\n\n"):
        lines = block.strip().splitlines()
        about = " ".join(line.removeprefix("# ") for line in lines if line.startswith("#"))
        rest = [line for line in lines if line and not line.startswith("#")]
        if rest:
            yield Kept(int(rest[0].removeprefix(_SEED)), tuple(Step.parse(line) for line in rest[1:]), about)


def life(kept: Kept) -> Life:
    """Return the life of a kept one."""
    return Life(kept.seed)
