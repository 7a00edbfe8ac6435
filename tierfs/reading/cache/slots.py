"""The table of slots and blocks of the disk cache, in eviction order. Memory only; the cache locks it."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tierfs.base.words.types import CRC_BLOCK_BYTES, ObjectId

# One block per slot: a slot is checked, dropped and healed as a whole.
SLOT_BYTES = CRC_BLOCK_BYTES


class SlotPlace(NamedTuple):
    """The block of an object that begins at `start`, and its slot. A block stored again is another SlotPlace."""

    object_id: ObjectId
    start: int
    slot: int


class SlotTable:
    """Slots [0, count): each is free, holds a block, or was taken and not yet put or given back."""

    def __init__(self, places: Iterable[SlotPlace], count: int) -> None:
        """`count` slots with these blocks, oldest first; of two slots with the same block the later counts."""
        self.count = count
        self._by_object: dict[ObjectId, dict[int, SlotPlace]] = {}
        self._order: OrderedDict[int, SlotPlace] = OrderedDict()
        for place in places:
            self._hold(place)
        self._free = [slot for slot in range(count) if slot not in self._order]  # ascending, so it is a heap

    @property
    def used(self) -> int:
        """Slots that hold a block."""
        return len(self._order)

    @property
    def free(self) -> int:
        """Slots that can be taken without dropping a block."""
        return len(self._free)

    def grow(self, count: int) -> None:
        """Add `count` free slots."""
        self._free.extend(range(self.count, self.count + count))  # larger than all others, so it stays a heap
        self.count += count

    def find(self, object_id: ObjectId, start: int, end: int) -> list[SlotPlace]:
        """Return the longest run of neighbouring held blocks from `start` on."""
        blocks = self._by_object.get(object_id)
        held: list[SlotPlace] = []
        if blocks is not None:
            for at in range(start, end, SLOT_BYTES):
                place = blocks.get(at)
                if place is None:
                    break
                held.append(place)
        return held

    def missing(self, object_id: ObjectId, start: int, end: int) -> list[int]:
        """Return the starts of missing blocks from `start` on; held ones count as just read."""
        blocks = self._by_object.get(object_id, {})
        self.touch(blocks[at] for at in range(start, end, SLOT_BYTES) if at in blocks)
        return [at for at in range(start, end, SLOT_BYTES) if at not in blocks]

    def gap(self, object_id: ObjectId, start: int, end: int) -> int:
        """Return the number of neighbouring missing blocks from `start` on."""
        blocks = self._by_object.get(object_id, {})
        reach = next((at for at in range(start, end, SLOT_BYTES) if at in blocks), end)
        return -(-(reach - start) // SLOT_BYTES)

    def touch(self, places: Iterable[SlotPlace]) -> None:
        """Note that these blocks were just read."""
        for place in places:
            if self._order.get(place.slot) is place:
                self._order.move_to_end(place.slot)

    def take(self, count: int) -> list[int]:
        """Return up to `count` slots to write to, ascending: free ones, then the least recently read ones."""
        taken = [heapq.heappop(self._free) for _ in range(min(count, len(self._free)))]
        while len(taken) < count and self._order:
            slot, place = self._order.popitem(last=False)
            self._unname(place)
            taken.append(slot)
        return sorted(taken)

    def put(self, places: Iterable[SlotPlace]) -> None:
        """Record these blocks in taken slots; no slot held them when the slots were taken."""
        for place in places:
            self._hold(place)

    def give_back(self, slots: Iterable[int]) -> None:
        """Return taken slots unused."""
        for slot in slots:
            heapq.heappush(self._free, slot)

    def drop(self, place: SlotPlace) -> bool:
        """Free a slot whose bytes are wrong; return False if it now holds another block, or the same one again."""
        if self._order.get(place.slot) is not place:
            return False
        del self._order[place.slot]
        self._unname(place)
        heapq.heappush(self._free, place.slot)
        return True

    def take_object(self, object_id: ObjectId) -> list[int]:
        """Take all slots of an object, ascending."""
        slots = sorted(place.slot for place in self._by_object.pop(object_id, {}).values())
        for slot in slots:
            del self._order[slot]
        return slots

    def _hold(self, place: SlotPlace) -> None:
        blocks = self._by_object.setdefault(place.object_id, {})
        older = blocks.get(place.start)
        if older is not None:
            del self._order[older.slot]
        blocks[place.start] = place
        self._order[place.slot] = place

    def _unname(self, place: SlotPlace) -> None:
        blocks = self._by_object[place.object_id]
        del blocks[place.start]
        if not blocks:
            del self._by_object[place.object_id]


def runs(places: Sequence[SlotPlace], limit: int) -> Iterator[Sequence[SlotPlace]]:
    """Cut into runs that are neighbours both in the object and on disk, of at most `limit` blocks."""
    first = 0
    for index in range(1, len(places) + 1):
        if index < len(places) and index - first < limit and _adjacent(places[index - 1], places[index]):
            continue
        if index > first:
            yield places[first:index]
        first = index


def _adjacent(place: SlotPlace, following: SlotPlace) -> bool:
    return following.slot == place.slot + 1 and following.start == place.start + SLOT_BYTES
