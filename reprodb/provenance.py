"""What set the operands of a recorded instruction, in registers and in the block's own memory. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from reprodb.executors.model import layout
from reprodb.executors.model.events import Kind, Step
from reprodb.occurrences import Events

WARP = 32


@dataclass(frozen=True, slots=True)
class Moment:
    """One executed instruction of one thread: the bits of its result and of its register sources.

    `at` is its place in time among the recording's events. `origins` has, for each operand of the step, the
    moment that set its register, copies left out; None where that is no recorded one. They go one step back.
    """

    step: Step
    thread: int
    at: int
    value: int
    sources: tuple[int, ...]
    origins: tuple[Moment | None, ...] = ()

    def bits(self, index: int) -> int | None:
        """The bits of operand `index`, where they are known."""
        operand = self.step.operands[index]
        if operand.constant is not None:
            return operand.constant
        return self.sources[operand.slot] if operand.slot is not None else None

    @property
    def address(self) -> int | None:
        """Where an access goes, as the thread sees it."""
        if self.step.kind not in (Kind.LOAD, Kind.STORE):
            return None
        base = self.bits(0)
        return None if base is None else base + self.step.offset


class Trail:
    """One side's way back in time from an event."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self._set_by: dict[int, tuple[int | None, ...]] = {}
        self._known: set[int] = set()  # threads
        self._stores: dict[tuple[str, int, int], list[int]] | None = None

    def bare(self, at: int) -> Moment:
        """The moment of an event, without its origins."""
        events = self.events
        sources = tuple(events.sources[at])
        return Moment(events.step(at), events.thread_of[at], at, events.values[at], sources)

    def moment(self, at: int) -> Moment:
        bare = self.bare(at)
        origins = (None if o is None else self.bare(o) for o in map(self._copied, self.set_by(at)))
        return Moment(bare.step, bare.thread, at, bare.value, bare.sources, tuple(origins))

    def set_by(self, at: int) -> tuple[int | None, ...]:
        """The event that set each operand's register last, copies included."""
        thread = self.events.thread_of[at]
        if thread not in self._known:
            self._known.add(thread)
            holds: dict[str, int] = {}
            for each in self.events.threads[thread]:
                step = self.events.step(each)
                self._set_by[each] = tuple(holds.get(operand.register) for operand in step.operands)
                if step.result:
                    holds[step.result] = each
        return self._set_by[at]

    def _copied(self, at: int | None) -> int | None:
        """What a copy copied, where that is recorded."""
        while at is not None and self.events.step(at).kind is Kind.MOVE:
            origins = self.set_by(at)
            if not origins or origins[0] is None:
                return at
            at = origins[0]
        return at

    def brought(self, at: int) -> int | None:
        """The event that a load or a shuffle has its value from: a store of the block, what a lane held."""
        step = self.events.step(at)
        if step.kind is Kind.LOAD:
            return self._stored(self.bare(at))
        if step.base == "shfl":
            lane = self._lane(self.bare(at))
            return None if lane is None else self.set_by(lane)[0]
        return None

    def behind(self, at: int) -> set[int]:
        """Every recorded event that went into the value of one: through registers, memory and shuffles.

        What decides a branch or an index is not seen.
        """
        found: set[int] = set()
        waiting = [at]
        while waiting:
            at = waiting.pop()
            if at not in found:
                found.add(at)
                waiting += (each for each in (*self.set_by(at), self.brought(at)) if each is not None)
        return found

    def untouched(self, events: Collection[int]) -> list[int]:
        """Those of some events that none of the others went into, by how soon their thread came to them.

        That order does not depend on who ran first; the lowest thread is first among equals.
        """
        among = set(events)
        touched: set[int] = set()
        found = []
        for at in range(len(self.events.numbers)):
            sources = (*self.set_by(at), self.brought(at))
            if any(source in touched for source in sources):
                touched.add(at)
            elif at in among:
                touched.add(at)
                found.append(at)
        return sorted(found, key=lambda at: (self._order(at), self.events.thread_of[at]))

    def _order(self, at: int) -> int:
        """Which of its thread's events one is."""
        return bisect_left(self.events.threads[self.events.thread_of[at]], at)

    def _stored(self, load: Moment) -> int | None:
        """The last store to what a load reads, before it."""
        if self._stores is None:
            self._stores = defaultdict(list)
            for at in range(len(self.events.numbers)):
                if self.events.step(at).kind is Kind.STORE:
                    key = _cell(self.bare(at))
                    if key is not None:
                        self._stores[key].append(at)
        key = _cell(load)
        stores = self._stores.get(key, []) if key is not None else []
        place = bisect_left(stores, load.at)
        return stores[place - 1] if place else None

    def _lane(self, moment: Moment) -> int | None:
        """The record of the lane from which a shuffle took its value, None where that is not known."""
        bits = [moment.bits(index) for index in range(3)]
        if bits[1] is None or bits[2] is None:
            return None
        lane, by, clamp = moment.thread % WARP, bits[1] % WARP, bits[2]
        keep, most = clamp >> 8 & WARP - 1, clamp & WARP - 1
        low, high = lane & keep, (lane & keep) | (most & ~keep & WARP - 1)
        mode = moment.step.opcode.split(".")[2]
        wanted = {"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": low | (by & ~keep & WARP - 1)}
        source = wanted[mode]
        if source < high if mode == "up" else source > high:
            source = lane
        found = moment.thread - lane + source
        return next((at for at in self._together(moment.at) if self.events.thread_of[at] == found), None)

    def _together(self, at: int) -> range:
        """The records of the same instruction, executed at the same time by the lanes of one warp."""
        numbers, threads = self.events.numbers, self.events.thread_of
        first = last = at
        while first and _follows(numbers, threads, first - 1):
            first -= 1
        while last + 1 < len(numbers) and _follows(numbers, threads, last):
            last += 1
        return range(first, last + 1)


def _follows(numbers: list[int], threads: list[int], at: int) -> bool:
    """Whether an event and the next one are two lanes of one warp at one instruction."""
    a, b = threads[at], threads[at + 1]
    return numbers[at] == numbers[at + 1] and a < b and a // WARP == b // WARP


def _cell(access: Moment) -> tuple[str, int, int] | None:
    """What an access reaches: state space, address, and the thread where each has memory of its own."""
    address = access.address
    if address is None:
        return None
    space = access.step.space
    if space == "generic" and address >> 32 == layout.SHARED_WINDOW >> 32:
        space, address = "shared", address & 0xFFFFFFFF
    elif space == "generic" and address >> 32 == layout.LOCAL_WINDOW >> 32:
        space, address = "local", address & 0xFFFFFFFF
    return ("global" if space == "generic" else space, address, access.thread if space == "local" else -1)
