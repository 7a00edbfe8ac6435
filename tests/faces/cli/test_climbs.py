"""A call descends through the layers: `consolidate` may climb back to a higher one at most thrice."""

from __future__ import annotations

import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import pytest

import tierfs
from tests import commands
from tierfs.faces.cli.main import main

PACKAGE = Path(tierfs.__file__).parent
LIMIT = 3


def ranks() -> dict[str, int]:
    """Return the layer of each folder and module of the package, 0 for the highest."""
    known = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in known if one["type"] == "layers" and one["containers"] == ["tierfs"])
    names = [layer.replace(":", "|").replace("(", "").replace(")", "").split("|") for layer in layers]
    return {name.strip(): rank for rank, row in enumerate(names) for name in row}


class Climbs:
    """Record the call stack with the most climbs."""

    def __init__(self) -> None:
        self.most: list[str] = []
        self._ranks = ranks()
        self._places: dict[CodeType, tuple[int, str] | None] = {}
        self._seen = 0

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and self._place(frame.f_code) is not None:
            self._seen += 1
            climbs = list(self._climbs(frame))
            if len(climbs) > len(self.most):
                self.most = climbs

    def _climbs(self, top: FrameType) -> Iterator[str]:
        below: tuple[int, str] | None = None
        frame: FrameType | None = top
        while frame is not None:
            here = self._place(frame.f_code)
            if here is not None:
                if below is not None and below[0] < here[0]:
                    yield f"{here[1]} -> {below[1]}"
                below = here
            frame = frame.f_back

    def _place(self, code: CodeType) -> tuple[int, str] | None:
        """Return the layer and name of a function of the package."""
        if code not in self._places:
            path, self._places[code] = Path(code.co_filename), None
            if path.is_relative_to(PACKAGE):
                name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
                self._places[code] = self._ranks.get(name, len(self._ranks)), f"{path.stem}.{code.co_qualname}"
        return self._places[code]

    @contextmanager
    def watched(self) -> Iterator[None]:
        old, old_threads = sys.getprofile(), threading.getprofile()
        threading.setprofile(self.profile)
        sys.setprofile(self.profile)
        try:
            yield
        finally:
            sys.setprofile(old)
            threading.setprofile(old_threads)
        assert self._seen


def test_consolidate_climbs_back_thrice_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store"
    commands.tierfs("-q", "init", store=path)
    for _ in range(2):
        commands.tierfs("-q", "append", "s", store=path, stdin=b"x" * 300_000)
        commands.tierfs("-q", "offload", "s", store=path)
    monkeypatch.setenv("TIERFS_STORE", str(path))
    monkeypatch.setattr(sys, "argv", ["tierfs", "-q", "consolidate"])
    climbs = Climbs()
    with climbs.watched(), pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert len(climbs.most) <= LIMIT, climbs.most
