"""Dataclasses that compile nothing at import behave as the standard ones."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys

import pytest

from tierfs.base.bytes.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """A record with every kind of field that is in use."""

    x: int
    y: int = 2
    path: list[int] = dataclasses.field(default_factory=list, compare=False)
    hidden: str = dataclasses.field(default="h", repr=False)
    twice: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "twice", 2 * self.x)


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A field with a default."""

    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Named(Base):
    """A field without one after it."""

    name: str


@dataclass(frozen=True, slots=True)
class Other:
    """Fields as of another class."""

    version: int
    name: str


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A record with an order."""

    row: int
    note: str = dataclasses.field(default="", compare=False)
    column: int = 0


@dataclass(slots=True)
class Count:
    """A record that changes."""

    of: str
    number: int = 0


@dataclass(slots=True, eq=False)
class Holder:
    """Only itself is equal to it."""

    number: int = 0


def test_values_come_by_place_name_and_default() -> None:
    assert dataclasses.astuple(Point(1)) == (1, 2, [], "h", 2)
    assert dataclasses.astuple(Point(1, 5, [3], hidden="z")) == (1, 5, [3], "z", 2)
    assert dataclasses.astuple(Named(name="n")) == (1, "n")
    assert Point(1).path is not Point(1).path
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Named("n")  # type: ignore[misc,call-arg]


def test_records_are_equal_by_class_and_compared_fields() -> None:
    assert Point(1, path=[1]) == Point(1, path=[2])
    assert hash(Point(1, path=[1])) == hash(Point(1, path=[2]))
    assert Point(1) != Point(2)
    assert Named(name="n") != Other(1, "n")


def test_records_are_shown_with_the_fields_that_may_be() -> None:
    assert repr(Point(1)) == "Point(x=1, y=2, path=[], twice=2)"


def test_nothing_of_a_record_changes() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.other = 1  # type: ignore[attr-defined]
    assert dataclasses.replace(point, y=7) == Point(1, 7)


def test_records_with_an_order_are_sorted_by_compared_fields() -> None:
    assert sorted([Place(2), Place(1, "b", 1), Place(1, "c")]) == [Place(1), Place(1, "", 1), Place(2)]
    assert Place(1) <= Place(1, "other")
    assert not Place(1) < Place(1, "other")
    assert Place(2) > Place(1)
    assert Place(2) >= Place(1)
    with pytest.raises(TypeError, match="not supported between"):
        Place(1) < (2,)  # type: ignore[operator]  # noqa: B015


def test_records_that_change_are_equal_by_what_they_hold_and_have_no_hash() -> None:
    count = Count("a")
    count.number += 1
    assert count == Count("a", 1)
    assert count != Count("a")
    with pytest.raises(TypeError, match="unhashable"):
        hash(count)
    holder = Holder()
    assert holder != Holder()
    assert {holder: 1}[holder] == 1


def test_records_travel_between_processes() -> None:
    point = Point(1, path=[1])
    assert copy.copy(Count("a", 2)) == Count("a", 2)
    for same in (pickle.loads(pickle.dumps(point)), copy.copy(point), copy.deepcopy(point)):
        assert dataclasses.astuple(same) == dataclasses.astuple(point)


PROGRAM = """
import builtins

compiles, run = [], builtins.exec
builtins.exec = lambda source, *scopes: (compiles.append(isinstance(source, str)), run(source, *scopes))
import tierfs.base.options.config

print(sum(compiles))
tierfs.base.options.config.ReadSettings()
print(sum(compiles))
"""


def test_a_class_is_compiled_when_one_is_made() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert after - before == 1
