"""The halving search and the walk: logarithmic, verified at the boundary, honest about gaps and returns."""

from __future__ import annotations

from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprodb.bisection import Boundary, Key, Step, carry_out, most_probes, steps


class Places:
    """A list of keys that counts its probes."""

    def __init__(self, *keys: Key) -> None:
        self.keys = keys
        self.probed: list[int] = []

    def probe(self, place: int) -> Key:
        self.probed.append(place)
        return self.keys[place]

    def boundary(self) -> Boundary | None:
        return carry_out(len(self.keys), self.probe)


@given(st.integers(2, 400), st.data())
def test_one_change_is_found_in_logarithmic_time(count: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(1, count - 1))
    places = Places(*(["good"] * first + ["bad"] * (count - first)))
    assert places.boundary() == Boundary(first - 1, first)
    assert len(places.probed) == len(set(places.probed)) <= 2 + ceil(log2(max(count - 1, 1)))
    assert len(places.probed) <= most_probes(count)


@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=2, max_size=60))
def test_whatever_the_keys_a_boundary_is_a_boundary(keys: list[Key]) -> None:
    places = Places(*keys)
    found = places.boundary()
    if keys[0] is None or keys[-1] is None or keys[0] == keys[-1]:
        assert found is None
        return
    assert found is not None
    assert keys[found.before] == keys[0]
    assert keys[found.first] not in (keys[0], None)
    assert {found.before, found.first} <= set(places.probed)  # both were looked at
    assert found.skipped == tuple(range(found.before + 1, found.first))
    assert all(keys[p] is None for p in found.skipped)


def test_skipped_places_are_passed_over() -> None:
    places = Places("good", "good", "good", None, None, "bad", "bad", "bad")
    assert places.boundary() == Boundary(2, 5, (3, 4))


@pytest.mark.parametrize("keys", [("x", "y", "x"), (None, "y"), ("x", None), ("x",)])
def test_without_a_difference_between_the_ends_there_is_no_boundary(keys: tuple[Key, ...]) -> None:
    places = Places(*keys)
    assert places.boundary() is None
    assert len(places.probed) <= 2


def test_fifteen_releases_take_six_probes() -> None:
    assert most_probes(15) == 6
    assert [most_probes(n) for n in (1, 2, 3, 4, 33)] == [1, 2, 3, 4, 7]


def test_a_walk_lists_every_step_and_names_what_returns() -> None:
    assert steps(["a", "a", "b", None, "b", "a", "c"]) == (
        Step(1, 2),
        Step(4, 5, returns_to=0),
        Step(5, 6),
    )
    assert steps({7: "b", 2: "a", 5: None}) == (Step(2, 7),)
    assert steps([]) == steps(["a", None, "a"]) == ()


@given(st.lists(st.sampled_from(["a", "b", "c", None]), max_size=30))
def test_steps_rebuild_the_walk(keys: list[Key]) -> None:
    found = {step.first: step for step in steps(keys)}
    current: Key = None
    for place, key in enumerate(keys):
        if key is None:
            continue
        assert (place in found) == (current is not None and key != current)
        if place in found:
            earlier = [p for p in range(place) if keys[p] == key]
            assert found[place].returns_to == (earlier[0] if earlier else None)
        current = key
