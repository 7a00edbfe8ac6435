"""Objects that a server joins: every name has its bytes before, during and after, wherever a process stops."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from tierfs.base.words.errors import DataLoss
from tierfs.engine.chunkstore.places.file_place import FilePlace
from tierfs.engine.chunkstore.places.files import FileStatus
from tierfs.engine.chunkstore.places.filesystem import MemoryFiles
from tierfs.engine.chunkstore.places.storage import PlaceStorage
from tierfs.engine.chunkstore.protocol import BufferSource, ObjectPiece, StoredObject

PARTS = {f"segments/s/7/chunk-{number}": bytes([65 + number]) * (1000 + number) for number in range(3)}
NEW = "segments/s/7/joined"
JOINED = b"".join(PARTS.values())


class Crash(BaseException):
    """The process is killed: nothing of it runs any more."""


class Joining(MemoryFiles):
    """Files in memory with HDFS' CONCAT, which dies before or after a step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.dies_at: float = float("inf")
        self.dies_after = False
        self.lost: type[Exception] | None = None
        self.before_read: Callable[[str], None] = lambda path: None

    @property
    def paths(self) -> list[str]:
        return list(self._fs.store)

    def damage(self, path: str, text: bytes) -> None:
        self._fs.pipe_file(path, text)

    def read_into(self, path: str, offset: int, buffer: memoryview, progress: Any) -> None:
        self.before_read(path)
        super().read_into(path, offset, buffer, progress)

    def _step(self, work: Any) -> None:
        self.steps += 1
        dies = self.steps == self.dies_at
        if self.steps > self.dies_at or (dies and not self.dies_after):
            raise Crash
        work()
        if dies:
            raise Crash

    def write(self, path: str, source: Any, *, create_only: bool = False) -> None:
        self._step(lambda: MemoryFiles.write(self, path, source, create_only=create_only))

    def rename(self, path: str, target: str, *, overwrite: bool) -> None:
        if path not in self._fs.store:
            raise FileNotFoundError(path)
        self._step(lambda: MemoryFiles.rename(self, path, target, overwrite=overwrite))

    def remove(self, path: str) -> None:
        if path not in self._fs.store:
            raise FileNotFoundError(path)
        self._step(lambda: MemoryFiles.remove(self, path))

    def join(self, path: str, others: Sequence[str]) -> None:
        def work() -> None:
            with self._lock:
                for each in (path, *others):
                    if each not in self._fs.store:
                        raise FileNotFoundError(each)
                    assert each.rpartition("/")[0] == path.rpartition("/")[0]
                data = b"".join(self._fs.cat_file(each) for each in (path, *others))
                for each in others:
                    del self._fs.store[each]
                self._fs.pipe_file(path, data)

        self._step(work)
        if self.lost is not None:
            raise self.lost("the answer was lost")


def pieces_of(stored: Iterable[StoredObject], *, may_move: bool = True) -> list[ObjectPiece]:
    """All bytes of objects."""
    return [ObjectPiece(each.name, 0, each.length_bytes, each.etag, may_move=may_move) for each in stored]


class World:
    """A place in memory with three objects, and processes that open it."""

    def __init__(self) -> None:
        self.root = f"/{uuid.uuid4().hex}"
        self.files = Joining()
        self.storage = self.opened(self.files)
        self.before = {name: self.put(name, data) for name, data in PARTS.items()}

    def opened(self, files: Joining) -> PlaceStorage:
        return PlaceStorage(FilePlace(files, self.root, has_joined=True), "memory://x")

    def put(self, name: str, data: bytes) -> StoredObject:
        return self.storage.put(name, BufferSource(data), metadata={"attempt": name[-1]})

    def join(self, name: str = NEW) -> Any:
        return self.storage.compose(name, pieces_of(self.before.values()), metadata={"attempt": "new"})

    def restart(self) -> None:
        """A new process, after the one before was killed."""
        self.files = Joining()
        self.storage = self.opened(self.files)

    def read(self, name: str, etag: str | None = None) -> bytes:
        buffer = bytearray(self.storage.stat(name).length_bytes)
        self.storage.read_into(name, 0, memoryview(buffer), if_match=etag)
        return bytes(buffer)

    def require_parts(self) -> None:
        """Every name of before is what it was: its bytes, its etag, its metadata, and it is listed once."""
        for name, data in PARTS.items():
            assert self.read(name, self.before[name].etag) == data
            assert self.storage.stat(name) == self.before[name]
        listed = [each for each in self.storage.list("segments/") if each.name in PARTS]
        assert [each.name for each in listed] == [*PARTS]
        assert [(each.etag, each.length_bytes) for each in listed] == [
            (each.etag, each.length_bytes) for each in self.before.values()
        ]

    @property
    def left(self) -> list[str]:
        return [path for path in self.files.paths if path.startswith(f"{self.root}/")]


@pytest.fixture
def world() -> World:
    return World()


def test_a_join_moves_every_byte_and_keeps_every_name(world: World) -> None:
    made = world.join()
    assert (made.client_bytes, made.moved, made.length_bytes) == (0, True, len(JOINED))
    world.require_parts()
    assert (world.read(NEW, made.etag), world.storage.stat(NEW).metadata) == (JOINED, {"attempt": "new"})
    assert {path.removeprefix(f"{world.root}/") for path in world.left if "/segments/" in path} >= {NEW}
    assert f"{world.root}/{next(iter(PARTS))}" not in world.left, "its bytes are stored once"
    assert [each.name for each in world.storage.list("")] == [*PARTS, NEW]
    for name in PARTS:
        world.storage.delete(name)
    assert world.read(NEW) == JOINED
    world.storage.delete(NEW)
    assert world.left == []


def test_the_new_object_is_given_up_and_the_old_ones_stay(world: World) -> None:
    """As after a crash before a row names it: it is garbage, and gc deletes it."""
    world.join()
    world.storage.delete(NEW)
    world.require_parts()
    assert NEW not in [each.name for each in world.storage.list("")]
    again = world.join("segments/s/7/second")  # by a copy: there are no files to join
    assert (again.moved, world.read("segments/s/7/second")) == (False, JOINED)
    for name in (*PARTS, "segments/s/7/second"):
        world.storage.delete(name)
    assert world.left == []


def test_an_object_that_was_joined_is_joined_again(world: World) -> None:
    first = world.join()
    other = world.put("segments/s/7/other", b"more")
    assert world.storage.compose("segments/s/7/all", pieces_of((first, other))).moved
    world.require_parts()
    assert (world.read(NEW), world.read("segments/s/7/all")) == (JOINED, JOINED + b"more")
    for name in (*PARTS, NEW, "segments/s/7/other", "segments/s/7/all"):
        world.storage.delete(name)
    assert world.left == []


@pytest.mark.parametrize("dies_after", [False, True])
@pytest.mark.parametrize("then", ["delete the new one", "delete the old ones"])
def test_wherever_a_process_dies_every_name_has_its_bytes(then: str, dies_after: bool) -> None:
    """At each step of a join, and again at each step of the deletion that follows it."""
    for step in range(1, 100):
        world = World()
        world.files.steps, world.files.dies_at, world.files.dies_after = 0, step, dies_after
        try:
            world.join()
            break
        except Crash:
            world.restart()
        world.require_parts()
        if then == "delete the new one":
            world.storage.delete(NEW)
            world.require_parts()
        for name in (*PARTS, NEW):
            world.storage.delete(name)
        for upload in list(world.storage.uploads("")):
            world.storage.abort_upload(upload)
        assert [path for path in world.left if "/.metadata/" not in path] == []
    assert step > 7


def test_wherever_a_deletion_dies_the_other_names_have_their_bytes() -> None:
    for step in range(1, 100):
        world = World()
        world.join()
        world.files.steps, world.files.dies_at, world.files.dies_after = 0, step, True
        try:
            world.storage.delete(NEW)
            break
        except Crash:
            world.restart()
        world.require_parts()
        world.storage.delete(NEW)
        world.require_parts()
    assert step > 2


def test_a_join_whose_answer_was_lost_is_complete(world: World) -> None:
    world.files.lost = ConnectionResetError
    assert world.join().moved
    world.files.lost = None
    world.require_parts()
    assert world.read(NEW) == JOINED


def test_a_read_that_located_a_file_before_a_join_goes_on(world: World) -> None:
    name, data = next(iter(PARTS.items()))

    def join_first(path: str) -> None:
        if path == f"{world.root}/{name}":
            world.files.before_read = lambda path: None
            world.join()

    world.files.before_read = join_first
    assert world.read(name, world.before[name].etag) == data
    assert f"{world.root}/{name}" not in world.left


@pytest.mark.parametrize("case", ["theirs", "part", "changed", "another directory", "once", "a comma"])
def test_what_may_not_be_joined_is_copied(case: str, world: World) -> None:
    stored = [*world.before.values()]
    if case in ("another directory", "a comma"):
        stored.append(world.put("segments/t/8/x" if case == "another directory" else "segments/s/7/a,b", b"x"))
    pieces = pieces_of(stored, may_move=case != "theirs")
    if case == "part":
        pieces[0] = ObjectPiece(stored[0].name, 1, 5, stored[0].etag, may_move=True)
    if case == "once":
        pieces = pieces[:1]
    if case == "changed":
        with suppress(Exception):
            world.storage.compose(NEW, [pieces[0], ObjectPiece(stored[1].name, 0, 1, "other", may_move=True)])
    else:
        assert not world.storage.compose(NEW, pieces).moved
    assert all(f"{world.root}/{name}" in world.left for name in PARTS), "every file is where it was"
    assert not any("/.join" in path for path in world.left)


def test_a_damaged_alias_is_an_error_and_no_other_objects_bytes(world: World) -> None:
    world.join()
    name = next(iter(PARTS))
    alias = f"{world.root}/.joined/{name}"
    outside = b'{"of": "../x", "offset": 0, "length": 1, "modified_ms": 0}'
    for text in (b"", b"[]", outside, b'{"of": "x", "offset": -1}'):
        world.files.damage(alias, text)
        with pytest.raises(DataLoss, match="is damaged"):
            world.storage.stat(name)


def test_other_places_pay_no_request_for_it() -> None:
    class Counted(MemoryFiles):
        asked = 0

        def status(self, path: str) -> FileStatus:
            Counted.asked += 1
            return super().status(path)

    storage = PlaceStorage(FilePlace(Counted(), f"/{uuid.uuid4().hex}"), "memory://y")
    with suppress(Exception):
        storage.stat("none")
    assert Counted.asked == 1
