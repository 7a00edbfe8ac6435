"""SIGKILL at the n-th changing system call of every command that changes something.

Killed there, a store is what it was or what it was to become, byte for byte; of commands that write in steps, each
segment is a whole prefix of what it was to become. Repeated, the command succeeds; at the end `gc` leaves nothing.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests import verbs
from tests.commands import Done
from tests.disks import filled
from tests.reality.lives import Contents, Life, Places, Words
from tests.reality.stopped import KILLED
from tierfs.app import store as app
from tierfs.app.verbs import delete
from tierfs.engine.segments.ledgers import make

CLASS = "COLD"
"""A storage class of the Ceph RGW of the tests."""

FULL, PAGE_BYTES = 28, 4096
LARGE = 0.2
"""Share of lives with objects that are sent in parts."""


@dataclass(frozen=True)
class Step:
    """A command whose store is prepared."""

    words: Words
    after: Contents | None = None
    """None: as before."""
    in_steps: bool = False
    """Whether it may do a part, which is durable."""
    again: Callable[..., Words] | None = None
    """How it is repeated, given what it did; as it was called unless it is said."""
    done: int = 0
    """The exit code of a repetition where nothing is left to do."""
    removed: bool = False
    """Whether a directory that is no store yet is removed before the repetition, as the command's help says."""
    until: Callable[[], bool] | None = None
    """When a command that never ends is asked to end."""
    module: str = "tierfs"
    finish: Callable[[], None] = lambda: None
    """Behind the repetition."""

    def run(self, life: Life, stop: int | None = None) -> Done:
        """Run it; see Life.run."""
        return life.run(*self.words, stop=stop, until=self.until, module=self.module)


def _append(life: Life) -> Step:
    old = life.contents()
    name, data = "a/s", life.data()
    start = len(old[name][1]) if name in old else 0
    (life.root / "input").write_bytes(data)

    def rest(seen: Contents) -> Words:
        length = len(seen[name][1]) if name in seen else 0
        return ("append", name, life.root / "input", "--skip", length - start, "--expect-offset", length)

    after = {**old, name: (0, (old[name][1] if name in old else b"") + data)}
    return Step(("append", name, life.root / "input"), after, in_steps=True, again=rest)


def _ingest(life: Life) -> Step:
    source = life.root / f"in{next(life.numbers)}"
    source.mkdir()
    files = {f"{source.name}/{number}": life.data() for number in range(4)}
    for name, data in files.items():
        (life.root / name).write_bytes(data)
    after = {**life.contents(), **{name: (0, data) for name, data in files.items()}}
    return Step(("ingest", source, "--into", source.name), after, in_steps=True)


def _seal(life: Life) -> Step:
    life.append(name := _new(life, "seal"))
    return Step(("seal", name))


def _offload(life: Life) -> Step:
    for _ in range(2):
        life.append(_new(life, "off"), seal=life.chosen.random() < 0.5)
    return Step(("offload",))


def _offload_ledgers(life: Life) -> Step:
    with app.open_store(life.path) as store:
        with store.metadata.write() as txn:
            name = make(txn, "topic")
        writer = store.engine.open_ledger(name)
        writer.append_entries([life.data()[:3000] for _ in range(20)])
        store.engine.close_writer(writer)
        store.engine.seal(name)
    return Step(("offload", "topic"))


def _evict(life: Life) -> Step:
    life.append(_new(life, "evict"), offload=True)
    return Step(("evict",))


def _consolidate(life: Life) -> Step:
    name = _new(life, "join")
    for _ in range(3):
        life.append(name, life.chosen.randbytes(life.chunk_bytes // 3), offload=True)
    return Step(("consolidate",))


def _compress(life: Life) -> Step:
    """Compressed and plain objects become one, or each one alone; a plain pack becomes a compressed one."""
    name = f"press{next(life.numbers)}/s"
    for number in range(3):
        life.append(f"{name}{number}", bytes(life.chosen.randrange(1, life.chunk_bytes // 20)), seal=True)
    for compression in life.chosen.choice((("off",), ("off", "zstd"), ("zstd", "off", "off"))):
        life.append(name, life.chosen.choice((life.data(), bytes(life.chunk_bytes // 3))))
        assert life.run("config", name.partition("/")[0], f"compression={compression}").code == 0
        assert life.run("offload").code == 0
    assert life.run("config", name.partition("/")[0], "compression=zstd").code == 0
    return Step(("consolidate", "--compress"))


def _archive(life: Life) -> Step:
    """Objects of both forms, of which some are in a pack, or a clone shares them."""
    _to_archive(life)
    return Step(("archive", "--class", CLASS))


def _unarchive(life: Life) -> Step:
    _to_archive(life)
    assert life.run("archive", "--class", CLASS).code == 0
    return Step(("archive", "--back"))


def _to_archive(life: Life) -> None:
    directory = f"old{next(life.numbers)}"
    for number in range(3):
        life.append(f"{directory}/s{number}", seal=True)
    assert life.run("offload").code == 0
    assert life.run("clone", f"{directory}/s0", f"{directory}/clone").code == 0
    assert life.run("evict").code == 0


def _truncate(life: Life) -> Step:
    life.append(name := _new(life, "cut"), offload=life.chosen.random() < 0.5)
    old = life.contents()
    data = old[name][1]
    before = max(1, life.chosen.choice([len(data), len(data) - 1, min(len(data), life.chunk_bytes), len(data) // 2]))
    return Step(("trim", name, "--before", before, "--yes"), {**old, name: (before, data[before:])})


def _concat(life: Life) -> Step:
    target, source = (_new(life, word) for word in ("target", "source"))
    life.append(target, offload=life.chosen.random() < 0.5)
    life.append(source, seal=True, offload=life.chosen.random() < 0.5)
    old = life.contents()
    after = {**old, target: (0, old[target][1] + old[source][1])}
    del after[source]
    return Step(("concat", target, source, "--yes"), after, done=3)


def _clone(life: Life) -> Step:
    source, name = (_new(life, word) for word in ("cloned", "clone"))
    life.append(source, offload=life.chosen.random() < 0.5)
    old = life.contents()
    start, data = old[source]
    end = life.chosen.randint(start, start + len(data))
    return Step(("clone", source, name, "--to", end), {**old, name: (start, data[: end - start])}, done=5)


def _remove(life: Life) -> Step:
    life.append(name := _new(life, "gone"), offload=life.chosen.random() < 0.5)
    after = life.contents()
    del after[name]
    return Step(("rm", name, "--yes", *(["--now"] if life.chosen.random() < 0.5 else [])), after, done=3)


def _restore(life: Life) -> Step:
    life.append(name := _new(life, "back"), offload=life.chosen.random() < 0.5)
    after = life.contents()
    with app.open_store(life.path) as store:
        delete(store, name, recursive=False)
    return Step(("restore", name), after, done=3)


def _collect(life: Life) -> Step:
    for number in range(3):
        life.append(name := _new(life, "dead"), offload=True)
        with app.open_store(life.path) as store:
            delete(store, name, recursive=False, now=number > 0)
    return Step(("gc", "--delete", "--trash", "--yes"))


def _recover(life: Life) -> Step:
    life.append(_new(life, "kept"))
    assert life.run("offload").code == 0
    after = life.contents()
    life.drop()
    return Step(("recover", *life.place.options), after, removed=True, done=5, finish=life.prepare)


def _load(life: Life) -> Step:
    life.append(_new(life, "cold"), offload=True)
    if local := life.chosen.random() < 0.5:
        life.append(_new(life, "local"))
    else:
        # Nothing may be in the local tier alone, the trash included.
        commands = (["gc", "--delete", "--trash", "--yes"], ["offload"], ["evict", "--force"])
        assert [life.run(*words).code for words in commands] == [0, 0, 0]
    after, dump = life.contents(), life.root / f"dump{next(life.numbers)}"
    assert life.run("backup", dump).code == 0
    if local:
        shutil.rmtree(life.path / "metadata")
    else:
        life.drop()
    return Step(("restore", dump), after, done=5, finish=life.prepare)


def _move(life: Life) -> Step:
    life.append(_new(life, "moved"), offload=True)
    place = life.elsewhere()

    def moved() -> None:
        life.place = place

    return Step(("move", "--to", place.url), done=2, finish=moved)


def _init(life: Life) -> Step:
    def words(seen: Contents | None = None) -> Words:
        """A place that was marked stays marked, and another one is chosen then."""
        if seen is None:
            life.place = life.elsewhere()
        return ("init", *life.place.options)

    life.drop()
    return Step(words(), {}, removed=True, done=5, again=words, finish=life.prepare)


def _daemon(life: Life) -> Step:
    for _ in range(2):
        life.append(_new(life, "held"), seal=True)

    def settled() -> bool:
        with app.open_store(life.path) as store:
            status = verbs.status(store)
        return not status.local.bytes and status.holder is not None

    return Step(("--store", life.path, "daemon", "--foreground"), until=settled)


def _write(life: Life) -> Step:
    """Spark's driver, without Spark: a batch of two segments."""
    into = _new(life, "out").replace("/", "-")
    after = life.contents() | {f"{into}/part-{part}": (0, b"x %d" % part) for part in range(2)}
    return Step((life.path, "none", into, "x"), after, module="tests.reality.batch_driver")


def _new(life: Life, word: str) -> str:
    return f"{word}/{next(life.numbers)}"


COMMANDS: dict[str, Callable[[Life], Step]] = {
    "append": _append,
    "ingest": _ingest,
    "seal": _seal,
    "offload": _offload,
    "offload-ledgers": _offload_ledgers,
    "evict": _evict,
    "consolidate": _consolidate,
    "compress": _compress,
    "truncate": _truncate,
    "concat": _concat,
    "clone": _clone,
    "rm": _remove,
    "restore": _restore,
    "gc": _collect,
    "recover": _recover,
    "load": _load,
    "move": _move,
    "daemon": _daemon,
    "batch-write": _write,
    "init": _init,
}
"""What each command finds, and what it is to leave."""

ON_S3: dict[str, Callable[[Life], Step]] = {**COMMANDS, "archive": _archive, "unarchive": _unarchive}
"""The same, and those that only a bucket with storage classes takes."""


def count(life: Life, command: str) -> int:
    """Let a command live; return the number of its changing calls."""
    step = ON_S3[command](life)
    done = step.run(life, stop=0)
    assert done.code == 0, done
    calls = life.calls
    step.finish()
    return calls


def kill(life: Life, command: str, last: int) -> bool:
    """Kill a command at a call, check the store, and repeat it; return whether it lived so long."""
    return disturb(life, command, lambda step: step.run(life, stop=last), KILLED)


def fill_disk(life: Life, command: str, free_bytes: int) -> bool:
    """Run a command with so much room on its disk, make room and repeat it; return whether it failed."""

    def run(step: Step) -> Done:
        filling = life.root / "filling"
        with filled(filling, free_bytes):
            done = step.run(life)
            if life.is_store:
                life.contents()  # a full disk holds up no reader
            return done

    return disturb(life, command, run, FULL)


def disturb(life: Life, command: str, run: Callable[[Step], Done], failed: int) -> bool:
    """Run a command that may end with the code `failed`; check the store, and repeat it if it did."""
    step = ON_S3[command](life)
    before = life.contents() if life.is_store else None
    after = step.after if step.after is not None else before
    done = run(step)
    assert done.code in (0, failed), done
    seen = life.contents() if life.is_store else None
    assert seen in (before, after) or (step.in_steps and _between(before, seen, after)), (before, seen, after)
    if done.code == 0 or (done.code == KILLED and done.out.endswith("\n")):
        assert seen == after, "it was reported as done"
    if done.code == failed:
        if seen is None and step.removed:
            shutil.rmtree(life.path, ignore_errors=True)
        words = step.again(seen) if step.again else step.words
        again = replace(step, words=words).run(life)
        assert again.code == 0 or (seen == after and again.code == step.done), again
    assert life.contents() == after
    step.finish()
    return done.code == failed


def _between(before: Contents | None, seen: Contents | None, after: Contents | None) -> bool:
    """Whether each segment is a prefix of what it was to become, and has what it had."""
    if before is None or seen is None or after is None:
        return False
    return seen.keys() <= after.keys() and all(
        seen.get(name, (0, b""))[0] == start
        and data.startswith(seen.get(name, (0, b""))[1])
        and seen.get(name, (0, b""))[1].startswith(before.get(name, (0, b""))[1])
        for name, (start, data) in after.items()
    )


def run(path: Path, places: Places, command: str, seed: str, kills: int = 0, *, at: Sequence[int] = ()) -> int:
    """Kill a command in one store, `kills` times at calls that the seed draws and at those that are named.

    Without either it is killed at every call. Return the number of kills.
    """
    chosen = random.Random(f"{seed} {command}")
    life, done = Life(path, places, chosen, large=chosen.random() < LARGE), 0
    try:
        if kills or at:
            calls = count(life, command)
            for last in [*at, *(chosen.randrange(1, calls + 1) for _ in range(kills))]:
                done += kill(life, command, last)
        else:
            state = chosen.getstate()  # each finds the same, so that calls have the same numbers
            while kill(life, command, done + 1):
                done += 1
                chosen.setstate(state)
        life.end()
    except BaseException as error:
        error.add_note(f"seed {seed}, {command}, killed {done} times before")
        raise
    return done


def run_full(path: Path, places: Places, seed: str, rounds: int, count: int | None = None) -> int:
    """Run every command, or so many, in one store, with a drawn room on its disk; return how many had too little.

    Not the daemon: it makes room where there is cold data, and waits where there is none.
    """
    chosen = random.Random(f"{seed} full")
    life, failed, said = Life(path, places, chosen), 0, [f"seed {seed}"]
    try:
        for _ in range(rounds):
            for command in chosen.sample(sorted(COMMANDS.keys() - {"daemon"}), count or len(COMMANDS) - 1):
                pages = chosen.choice([chosen.randrange(4), 1 << chosen.randrange(9)])
                said.append(f"{command} with {pages} pages")
                failed += fill_disk(life, command, pages * PAGE_BYTES)
        life.end()
    except BaseException as error:
        error.add_note("; ".join(said))
        raise
    return failed
