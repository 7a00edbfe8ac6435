"""The background writer over hours of fake time, as a table: policy, what happens, and the layout that is expected.

A row is a script. `+1h` lets time pass; `s 4 2 | 8` expects the local and cold chunks of segment `s`; `failing` expects
the list of failures, each with its segment. What follows a time happens before the holder looks again.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from tests.stores import TestStore, assert_layout, create_ledger
from tests.upkeep.check.looking import flip_local
from tests.upkeep.holder.holding import (
    HOUR_S,
    MINUTE_S,
    SLOWLY,
    FlakyStorage,
    TrioClock,
    failures,
    nothing_left,
    set_policy,
    working,
)
from tierfs.base.options import policy
from tierfs.base.options.config import BackgroundSettings
from tierfs.base.words.types import ChunkState, Tier
from tierfs.engine.metadata import chain_edits, chains
from tierfs.engine.segments import ledgers
from tierfs.engine.segments.writer import SegmentWriter
from tierfs.upkeep.holder import requests

DAY_S = 24 * HOUR_S

UNITS_S = {"s": 1, "m": MINUTE_S, "h": HOUR_S, "d": DAY_S}

SETTINGS = {
    "": BackgroundSettings(),
    "slowly": SLOWLY,
    "by the minute": BackgroundSettings(tick_s=MINUTE_S, request_poll_s=MINUTE_S),
    "12 B": BackgroundSettings(high_watermark_bytes=12),
    "200 B": BackgroundSettings(high_watermark_bytes=200),
}

BY_SIZE = "policy object_bytes=4 offload_after=off chunk_age=12d offload_above_bytes"

ROWS = {
    "a segment goes its way by itself": (
        "slowly",
        """write s 8 2; s 4 4 2 |
           +1m;   s 4 4 2 | 8
           +8m;   s 4 4 2 | 8
           +2m;   s 4 4 2 | 8 2
           write s 1
           +3h;   s 4 4 2 1 | 8 2 1
           +2h;   s | 8 2 1; nothing left
           write s 1
           +11m;  s 1 | 8 2 1 1""",
    ),
    "a ledger goes its way by itself, as a whole": (
        "slowly",
        """ledger t/1 3 7
           +1h;   t/1 4 4 2 |
           ledger t/1 2; t/1 4 4 4 |
           seal t/1
           +1m;   t/1 4 4 4 | 12
           +3h;   t/1 4 4 4 | 12
           +2h;   t/1 | 12; nothing left""",
    ),
    "an empty ledger is left": ("", "ledger t/1 0 0; seal t/1; ledger t/2; seal t/2; +3s; t/1 |; t/2 |; failing"),
    "a ledger waits from its end on": (
        "slowly",
        "policy offload_after=1h; ledger t/1 4; +1h; seal t/1; +59m; t/1 4 |; +2m; t/1 4 | 4",
    ),
    "a new policy counts at the next tick": (
        "slowly",
        """policy offload_after=2h deletion_lag=0; append s 4 sealed
           +1h;   s 4 |
           policy deletion_lag=0
           +4m;   s | 4""",
    ),
    "a policy that was off counts when it is on": (
        "slowly",
        """policy offload_after=off; ledger t/1 4; seal t/1; append s 4 sealed
           +1h;   s 4 |; t/1 4 |
           policy
           +1m;   s 4 | 4; t/1 4 | 4""",
    ),
    "lag off": ("", "policy deletion_lag=off; append s 4 sealed; ledger t/1 4; seal t/1; +66s; s 4 | 4; t/1 4 | 4"),
    "lag 0": (
        "",
        "policy deletion_lag=0; append s 4 sealed; ledger t/1 4; seal t/1; ledger t/2 4; +8s; s | 4; t/1 | 4; t/2 4 |",
    ),
    "lag 60": (
        "",
        """policy deletion_lag=60; append s 4 sealed; ledger t/1 4; seal t/1
           +58s;  s 4 | 4; t/1 4 | 4
           +8s;   s | 4; t/1 | 4""",
    ),
    **{
        f"{above} of 12 bytes may be here alone": ("", f"{BY_SIZE}={above}; append s 12 sealed; +5s; s 4 4 4 | {cold}")
        for above, cold in {
            13: "",
            12: "",
            11: "4",
            8: "4",
            7: "4 4",
            4: "4 4",
            3: "4 4 4",
            1: "4 4 4",
            0: "4 4 4",
        }.items()
    },
    # 140 bytes in all, of which 20 cannot go
    **{
        f"closed ledgers are due by age, {after}, or by size, {above}": (
            "",
            f"""policy offload_after={after} offload_above_bytes={above}
               ledger t/1 40; seal t/1; ledger t/2 40; seal t/2; ledger t/3 40; seal t/3; ledger t/4 20
               +6s;   cold {" ".join(["t/1", "t/2", "t/3"][: max(by_size, by_age)])}""",
        )
        for above, by_size in {"off": 0, "-1": 0, "0": 3, "1": 3, "100": 1}.items()
        for after, by_age in {"off": 0, "-1": 0, "0": 3, "1": 3, "1w": 0}.items()
    },
    "a segment that grows stays below its limit, and its active chunk does not count": (
        "",
        f"""{BY_SIZE}=8; append s 8 2
           +5s;   s 4 4 2 |
           append s 2 1
           +5s;   s 4 4 4 1 | 4
           append s 3 1
           +5s;   s 4 4 4 4 1 | 4 4""",
    ),
    "a stream counts as one and others for themselves": (
        "",
        f"""{BY_SIZE}=8 seal_bytes=4
           append s 4; append s 4; append s 4; append s 4; append other 4; append other 4
           +5s;   s 4 | 4; s.4 4 | 4; s.8 4 |; s.12 4 |; other 4 |; other.4 4 |
           append s 4; append s 1
           +5s;   s.8 4 | 4; s.12 4 |""",
    ),
    "bytes that are cold or cut off do not count": (
        "",
        f"""append s 12 sealed
           +5s;   s 4 4 4 | 8 4
           append t 12 sealed; truncate t 5; {BY_SIZE}=7
           +5s;   s 4 4 4 | 8 4; t 4 4 |""",
    ),
    "each managed ledger counts for itself": (
        "",
        """policy offload_above_bytes=50 offload_after=off
           ledger t/1 20; seal t/1; ledger u/1 10; seal u/1; +3s; ledger t/2 20; seal t/2; ledger u/2 10; seal u/2
           +3s;   ledger t/10 20; seal t/10; ledger u/10 10; seal u/10
           +3s;   cold t/1
           ledger t/11 20
           +3s;   cold t/1 t/2
           delete t/11; policy offload_above_bytes=19 offload_after=off
           +3s;   cold t/1 t/10 t/2 u/1 u/2""",
    ),
    "chunks that grow too large together end before their time": (
        "200 B",
        """policy chunk_bytes=1000 object_bytes=1000; append a 1; append b 1; append c 1
           +3s;   b 1 |
           append b 120
           +3s;   b 121 | 121; a 1 |; c 1 |""",
    ),
    "open ledgers make no other segment end early": (
        "200 B",
        "policy chunk_bytes=1000 object_bytes=1000; ledger t/1 150; append s 1; +3s; s 1 |; t/1 150 |",
    ),
    "what fails is listed, tried again and never dropped": (
        "slowly",
        """down; append s 4
           +1h;   s 4 |; failing offload:s publish
           up
           +6m;  s 4 | 4; failing""",
    ),
    "a cold tier that fails every call costs no local byte": (
        "slowly",
        """append s 8 sealed
           +1h;   s 4 4 | 8
           gone
           +5h;   s 4 4 | 8; failing evict owner
           back
           +6m;   s | 8; failing""",
    ),
    "a damaged chunk stays listed and holds up nobody": (
        "slowly",
        """append bad 4 sealed; append good 4 sealed; flip bad 1
           ledger t/1 4 4; ledger t/2 4; seal t/1; seal t/2; flip t/1 5; accuse t/1 5
           +1h;   good 4 | 4; bad 4 |; t/1 4 4 |; t/2 4 | 4; failing offload:bad offload:t/1""",
    ),
    "packs that fail are one failure and go on when it is over": (
        "slowly",
        """policy chunk_bytes=4096 object_bytes=65536
           down; append s 100 sealed; append t 200 sealed; append u 0 sealed
           +5m;   s 100 |; t 200 |; failing pack publish
           up
           +6m;   s 100 | 100; t 200 | 200; u |; failing""",
    ),
    "a damaged chunk of a pack is listed and the others are cold": (
        "slowly",
        """policy chunk_bytes=4096 object_bytes=65536
           append s 100 sealed; append t 100 sealed; append u 100 sealed; flip t 99
           +1h;   s 100 | 100; t 100 |; u 100 | 100; failing offload:t""",
    ),
    "a jump of the clock stops timed deletions": (
        "by the minute",
        """policy retention_age=365d; append s 4 sealed
           +5m;   ahead 730d
           +1h;   s 4 | 4; failing timed deletions
           ahead 0s
           +10m;  s 4 | 4
           +4h;   s | 4; failing""",
    ),
    "requests are done in order and answered": (
        "",
        """append a/s 6; ask offload a; ask evict a; ask offload nowhere; ask dance a
           +3s;   a/s | 6; answers DONE DONE NotFound InvalidRequest""",
    ),
    "a prefix is offloaded on request": (
        "",
        """policy offload_after=1h; ledger t/1 4; ledger t/2 4; ledger t/3 4; seal t/1; seal t/2; seal t/3
           ask ledger-offload t before=3:0; ask ledger-offload t before=4:0
           +3s;   cold t/1 t/2; answers DONE InvalidRequest
           ask ledger-offload t
           +3s;   cold t/1 t/2 t/3; answers DONE InvalidRequest DONE""",
    ),
}


class Play:
    """A script at work; a method for each word."""

    def __init__(self, store: TestStore, storage: FlakyStorage) -> None:
        self.store = store
        self.storage = storage
        self.asked: list[int] = []
        self.writers: dict[str, SegmentWriter] = {}

    async def step(self, text: str) -> None:
        """Do one step, or compare what it expects."""
        word, *words = text.split()
        if word.startswith("+"):
            await trio.sleep(seconds(word[1:]))
        elif "|" in words:
            cut = words.index("|")
            assert_layout(self.store, word, local=[*map(int, words[:cut])], cold=[*map(int, words[cut + 1 :])])
        else:
            do: Callable[..., None] = getattr(self, word)
            do(*words)

    def policy(self, *settings: str) -> None:
        parsed = (setting.split("=") for setting in settings)
        set_policy(self.store, **{key: policy.parse(key, value) for key, value in parsed})

    def append(self, name: str, *sizes: str) -> None:
        self.store.append(name, *(bytes(int(size)) for size in sizes if size != "sealed"), seal=sizes[-1] == "sealed")

    def write(self, name: str, *sizes: str) -> None:
        """Append by a writer that stays open."""
        writer = self.writers.get(name) or self.store.engine.open_writer(name)
        self.writers[name] = writer
        for size in sizes:
            writer.append(bytes(int(size)))

    def ledger(self, name: str, *sizes: str) -> None:
        with self.store.metadata.read() as txn:
            known = any(one.segment == name for one in ledgers.below(txn, ""))
        if not known:
            create_ledger(self.store.metadata, name)
        if sizes:
            writer = self.store.engine.open_ledger(name)
            writer.append_entries([bytes(int(size)) for size in sizes], last=True)
            self.store.engine.close_writer(writer)

    def seal(self, name: str) -> None:
        self.store.engine.seal(name)

    def truncate(self, name: str, before: str) -> None:
        self.store.engine.truncate(name, int(before), cold_due_ms=0)

    def delete(self, name: str) -> None:
        self.store.engine.delete(name, recursive=False, cold_due_ms=0)

    def flip(self, name: str, offset: str) -> None:
        flip_local(self.store, name, int(offset))

    def accuse(self, name: str, offset: str) -> None:
        """Mark the local chunk suspect, as a reader does that it failed."""
        with self.store.metadata.read() as txn:
            chunk = chains.chunk_at(txn, self.store.segment(name).id, Tier.LOCAL, int(offset))
        assert chunk is not None
        chain_edits.set_state(self.store.metadata, self.store.segment(name).id, Tier.LOCAL, chunk, ChunkState.SUSPECT)

    def ask(self, verb: str, path: str, *options: str) -> None:
        given = dict(option.split("=") for option in options)
        self.asked.append(requests.submit(self.store.metadata, verb.replace("-", " "), path, given))

    def down(self) -> None:
        self.storage.down = True

    def up(self) -> None:
        self.storage.down = False

    def gone(self) -> None:
        self.storage.gone = True

    def back(self) -> None:
        self.storage.gone = False

    def ahead(self, time: str) -> None:
        TrioClock.ahead_s = seconds(time)

    def nothing(self, _left: str) -> None:
        assert nothing_left(self.store)
        assert list(self.store.files.names()) == []

    def cold(self, *names: str) -> None:
        with self.store.metadata.read() as txn:
            known = [one.segment for one in ledgers.below(txn, "")]
        assert sorted(name for name in known if self.store.segment(name).cold.count) == [*names]

    def failing(self, *what: str) -> None:
        rows = failures(self.store)
        assert sorted(f"{row.what.split()[0]}:{row.name}" if row.name else row.what for row in rows) == (
            [" ".join(what)] if "timed" in what else [*what]
        )

    def answers(self, *expected: str) -> None:
        rows = [requests.get(self.store.metadata, number) for number in self.asked]
        assert [row.error_kind or row.state.name for row in rows] == [*expected]


def seconds(time: str) -> int:
    """`+1h` is 3600."""
    return int(time[:-1]) * UNITS_S[time[-1]]


@pytest.mark.parametrize("row", ROWS)
async def test_layouts_become_those_of_the_table(
    store: TestStore,
    storage: FlakyStorage,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    expected_warnings: list[str],
    row: str,
) -> None:
    expected_warnings += ["does not answer", "offload .* failed: ", "not trusted", "timed deletions failed"]
    monkeypatch.setattr(TrioClock, "ahead_s", 0)
    settings, script = ROWS[row]
    play = Play(store, storage)
    async with working(store, SETTINGS[settings]):
        for step in re.split(r";|\n", script):
            try:
                await play.step(step)
            except AssertionError as exc:
                exc.add_note(f"at: {step.strip()}")
                raise
