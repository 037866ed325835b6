"""Nights that did not happen: gaps of a rhythm, and where people are told."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprodb.cli import doctor
from reprodb.nights import Gap, gaps, missed
from tests.builders import STARTED, make_result
from tests.nights import Nights

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


def days(*numbers: float) -> list[datetime]:
    return [STARTED + number * DAY for number in numbers]


def test_a_night_that_is_missing_lies_between_two_others() -> None:
    (gap,) = gaps(days(0, 1, 4, 5), DAY)
    assert gap == Gap(2, STARTED + DAY, STARTED + 4 * DAY)
    assert str(gap) == "2 nights without a run between 2026-03-02 and 2026-03-05"


def test_a_schedule_that_is_late_misses_nothing() -> None:
    """GitHub starts scheduled workflows hours late where many want one."""
    assert gaps(days(0, 1.3, 2, 3.4), DAY, STARTED + 4.5 * DAY) == ()


@pytest.mark.parametrize(("after", "words"), [(1.4, ""), (1.6, "1 night did not"), (9, "8 nights did not")])
def test_the_night_that_is_due_is_missed_when_it_is_half_a_period_late(after: float, words: str) -> None:
    found = gaps(days(0, 1), DAY, STARTED + (1 + after) * DAY)
    assert (str(found[0]) if found else "").startswith(words)
    assert bool(found) == bool(words)


def test_toolkits_of_one_night_are_one_night() -> None:
    starts = [start + step for start in days(0, 1, 2, 3) for step in (0 * HOUR, HOUR)]
    assert gaps(starts, DAY) == gaps(starts, None) == ()
    assert [gap.missed for gap in gaps(starts[:2] + starts[-2:], DAY)] == [2]


def test_without_a_cadence_the_usual_time_counts_and_nothing_is_due() -> None:
    assert [gap.missed for gap in gaps(days(0, 1, 2, 3, 7), None, STARTED + 99 * DAY)] == [3]
    assert gaps([STARTED + n * HOUR for n in range(9)], None) == ()
    assert gaps([], DAY, STARTED) == ()


@given(
    st.lists(st.integers(0, 400), min_size=2, max_size=30, unique=True),
    st.lists(st.floats(-0.2, 0.2), min_size=30, max_size=30),
)
def test_every_missing_night_is_counted_once(nights: list[int], jitter: list[float]) -> None:
    """Whatever the order in which they are given, and a fifth of a day early or late."""
    ordered = sorted(nights)
    starts = days(*(n + j for n, j in zip(ordered, jitter, strict=False)))
    random.Random(1).shuffle(starts)
    lacking = ordered[-1] - ordered[0] + 1 - len(ordered)
    assert sum(gap.missed for gap in gaps(starts, DAY)) == lacking
    assert missed(min(starts), min(starts), DAY) == 0


# --- Where it is said --------------------------------------------------------------------------


@pytest.fixture(name="nights")
def a_database_of_three_nights_two_missing(tmp_path: Path) -> Nights:
    """The last one two days ago."""
    (tmp_path / "reprodb.toml").write_text('[nightly]\nevery = "24h"\n')
    nights = Nights(tmp_path, '[nightly]\nevery = "24h"\n')
    now = datetime.now(UTC)
    for back in (6, 5, 2):
        nights.last = nights.night(make_result(), at=now - back * DAY)
    return nights


def test_the_next_night_says_which_were_missing(nights: Nights) -> None:
    assert nights.last is not None
    assert [note for note in nights.last.notes if "2 nights without a run" in note]
    assert nights.last.exit_code == 0


@pytest.mark.parametrize("command", [("runs",), ("history", "sum_squares_tree")])
def test_lists_say_it_past_and_present(nights: Nights, command: tuple[str, ...]) -> None:
    said = nights.call(*command)
    lines = [line for line in said.out.splitlines() if line.startswith("⋯")]
    assert len(lines) == 2
    assert "reprodb, modelled: 2 nights without a run between" in lines[0]
    assert "1 night did not happen since" in lines[1]
    assert "⋯" not in nights.call(*command, "--json").out
    (nights.folder / "reprodb.toml").write_text("[nightly]\nevery = 7\n")
    assert nights.call(*command).code == 0


def test_doctor_says_it_with_what_to_look_at(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(nights.folder)
    (check,) = doctor.nights(str(nights.database))
    assert (check.ok, check.name) == (False, "reprodb modelled")
    assert check.detail.startswith("1 night did not happen since")
    assert "60 idle days" in check.remedy
    nights.night(make_result(), at=datetime.now(UTC))
    (check,) = doctor.nights(str(nights.database))
    assert check.ok
    assert "1 night without a run between" in check.detail


def test_doctor_without_a_database_or_a_cadence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(doctor.nights("absent.db")) == []
    (tmp_path / "reprodb.toml").write_text('[nightly]\nevery = "1d"\n')
    (check,) = doctor.nights("absent.db")
    assert (check.ok, check.remedy) == (False, "reprodb nightly")
    assert not (tmp_path / "absent.db").exists()
    (tmp_path / "text.db").write_text("hello " * 100)
    (check,) = doctor.nights("text.db")
    assert (check.ok, "not a SQLite database" in check.detail) == (False, True)
