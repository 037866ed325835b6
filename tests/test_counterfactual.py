"""The search for minimal sets: interactions, cancelling changes, failures and limits, against brute force."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprodb.counterfactual import Answer, Findings, Minimal, Set, carry_out, search

FOUR = ("-fmad", "-ftz", "-prec-div", "toolchain")


class World:
    """Bits as a function of what is exchanged; remembers what was asked."""

    def __init__(self, bits: Callable[[Set], str | None]) -> None:
        self.bits = bits
        self.asked: list[Set] = []

    def probe(self, sets: Sequence[Set]) -> list[Answer]:
        self.asked += sets
        return [Answer(self.bits(s), "" if self.bits(s) else "did not build") for s in sets]


def found(world: World, names: Sequence[str] = FOUR, *, limit: int = 1000, every: bool = False) -> Findings:
    return carry_out(search(names, limit=limit, every=every), world.probe)


def test_one_flag_alone() -> None:
    world = World(lambda s: "new" if "-ftz" in s else "old")
    findings = found(world)
    assert findings.minimal == (Minimal(("-ftz",), True),)
    assert findings.reproducing == (("-ftz",),)
    assert len(world.asked) == 2 + 4


def test_two_of_four_matter_only_together() -> None:
    world = World(lambda s: "new" if {"-ftz", "-fmad"} <= s else "old")
    findings = found(world)
    assert findings.minimal == (Minimal(("-fmad", "-ftz"), True),)
    assert findings.smallest
    assert findings.untried == 0
    assert len(world.asked) == 2 + 4 + 6


def test_two_that_each_move_and_together_give_the_candidate() -> None:
    world = World(lambda s: "+".join(sorted(s & {"-ftz", "toolchain"})) or "old")
    findings = found(world)
    assert findings.minimal == (Minimal(("-ftz",), False), Minimal(("toolchain",), False))
    assert findings.reproducing == (("-ftz", "toolchain"),)


def test_two_that_cancel_each_other() -> None:
    """-fmad and -ftz move the bits alone and not together; the toolchain moves them to the candidate's."""

    def bits(s: Set) -> str:
        if "toolchain" in s:
            return "new"
        return "odd" if len(s & {"-fmad", "-ftz"}) == 1 else "old"

    findings = found(World(bits))
    assert [m.names for m in findings.minimal] == [("-fmad",), ("-ftz",), ("toolchain",)]
    assert findings.reproducing == (("toolchain",),)


def test_either_of_two_is_enough() -> None:
    findings = found(World(lambda s: "new" if s & {"-fmad", "-ftz"} else "old"))
    assert findings.reproducing == (("-fmad",), ("-ftz",))


def test_every_goes_on_past_the_first_size_that_reproduces() -> None:
    world = World(lambda s: "new" if "toolchain" in s or {"-fmad", "-ftz"} <= s else "old")
    assert [m.names for m in found(world).minimal] == [("toolchain",)]
    findings = found(world, every=True)
    assert [m.names for m in findings.minimal] == [("toolchain",), ("-fmad", "-ftz")]


def test_a_set_without_bits_is_a_gap_in_the_claim() -> None:
    def bits(s: Set) -> str | None:
        if s == {"-ftz"}:
            return None
        return "new" if {"-ftz", "-fmad"} <= s else "old"

    findings = found(World(bits))
    assert findings.minimal == (Minimal(("-fmad", "-ftz"), True, gaps=(("-ftz",),)),)


@pytest.mark.parametrize(("base", "target"), [("same", "same"), (None, "new"), ("old", None)])
def test_without_a_difference_nothing_more_is_asked(base: str | None, target: str | None) -> None:
    world = World(lambda s: target if s else base)
    findings = found(world)
    assert not findings.differs
    assert findings.minimal == ()
    assert len(world.asked) == 2


def test_one_coordinate_is_the_whole_set() -> None:
    findings = found(World(lambda s: "new" if s else "old"), ("toolchain",))
    assert findings.minimal == (Minimal(("toolchain",), True),)
    assert findings.reproducing == (("toolchain",),)


def test_a_limit_cuts_the_search_and_reduction_leaves_an_answer() -> None:
    names = tuple("abcdefghijkl")
    culprits = frozenset("cfhk")
    world = World(lambda s: "new" if culprits <= s else "old")
    findings = found(world, names, limit=60)
    assert len(world.asked) <= 60
    assert findings.untried > 0
    assert findings.reproducing == (("c", "f", "h", "k"),)
    assert not findings.smallest
    assert findings.minimal == ()  # not every part of it was tried


NAMES = ("a", "b", "c", "d")
SUBSETS = tuple(map(frozenset, chain.from_iterable(combinations(NAMES, k) for k in range(5))))


@given(st.lists(st.sampled_from(["old", "new", "odd", None]), min_size=16, max_size=16))
def test_it_finds_what_trying_everything_finds(bits: list[str | None]) -> None:
    table = dict(zip(SUBSETS, bits, strict=True))
    table[SUBSETS[0]], table[SUBSETS[-1]] = "old", "new"
    findings = found(World(table.__getitem__), NAMES, every=True)
    movers = [s for s in SUBSETS if table[s] not in ("old", None)]
    minimal = [s for s in movers if not any(m < s for m in movers)]
    assert {frozenset(m.names) for m in findings.minimal} == set(minimal)
    for one in findings.minimal:
        assert one.reproduces == (table[frozenset(one.names)] == "new")
        parts = {s for s in SUBSETS if s < frozenset(one.names) and table[s] is None}
        assert {frozenset(gap) for gap in one.gaps} == parts
    reproducers = [s for s in SUBSETS if table[s] == "new"]
    smallest = min(map(len, reproducers))
    assert findings.smallest
    assert {frozenset(r) for r in findings.reproducing} == {s for s in reproducers if len(s) == smallest}


@given(
    st.integers(1, 7),
    st.integers(3, 40),
    st.randoms(use_true_random=False),
)
def test_a_limit_holds_and_what_is_said_is_true(count: int, limit: int, random: Random) -> None:
    names = tuple("abcdefg"[:count])
    rolled = {s: random.choice(("old", "new", "odd")) for k in range(count + 1)
              for s in map(frozenset, combinations(names, k))}  # fmt: skip
    rolled[frozenset()], rolled[frozenset(names)] = "old", "new"
    world = World(rolled.__getitem__)
    findings = found(world, names, limit=limit)
    assert len(world.asked) <= limit
    assert len(set(world.asked)) == len(world.asked) == findings.tried
    assert all(rolled[frozenset(r)] == "new" for r in findings.reproducing)
    if findings.smallest:
        smaller = [s for s in rolled if len(s) < len(findings.reproducing[0])]
        assert all(rolled[s] != "new" for s in smaller)
    for one in findings.minimal:
        assert rolled[frozenset(one.names)] != "old"
        for k in range(len(one.names)):
            assert all(rolled[frozenset(part)] == "old" for part in combinations(one.names, k))
