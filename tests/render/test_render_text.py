"""Text from outside: nothing invisible, nothing that steers a terminal, bounded length."""

from datetime import UTC, datetime, timedelta, timezone
from unicodedata import category

from hypothesis import given
from hypothesis import strategies as st

from reprodb.render.text import joined, lines, name, ranges, utc, visible
from tests.render.samples import HOSTILE


@given(st.text())
def test_no_steering_character_survives(text: str) -> None:
    shown = visible(text)
    assert not {category(c) for c in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert not any(c in shown for c in "\x1b\x07\r\n\u202e\u200f\u2066\ufeff\u200b")


@given(st.text(max_size=5000), st.integers(1, 400))
def test_length_is_bounded(text: str, limit: int) -> None:
    # A character may be spelled out in up to ten.
    assert len(visible(text, limit)) <= 10 * limit + 40


def test_plain_text_is_kept() -> None:
    assert visible("sum_squares_tree → 0x4b25426d, naïve ✓") == "sum_squares_tree → 0x4b25426d, naïve ✓"


def test_marks_are_spelled_out() -> None:
    assert "⟨U+202E⟩" in visible(HOSTILE)
    assert "⟨U+001B⟩" in visible(HOSTILE)
    assert visible("\ud800") == "⟨U+D800⟩"


def test_long_names_say_what_was_cut() -> None:
    assert name("A" * 10_000) == "A" * 120 + " … (+9,880 characters)"


def test_logs_are_cut_by_lines_and_width() -> None:
    shown = lines("\n".join(["x" * 1000] * 50), 3, 10)
    assert shown == (*("xxxxxxxxxx … (+990 characters)",) * 3, "… (+47 lines)")


def test_times_are_utc() -> None:
    moment = datetime(2026, 3, 2, 6, 30, tzinfo=timezone(timedelta(hours=2)))
    assert (
        utc(moment)
        == utc(moment.astimezone(UTC))
        == utc(datetime(2026, 3, 2, 4, 30))
        == "2026-03-02T04:30:00Z"
    )
    assert utc(None) is None


def test_lists_in_words() -> None:
    assert joined(["a", "b", "c"]) == "a, b and c"
    assert joined(["a"]) == "a"
    assert ranges((5, 17, 40, 41, 42)) == "5, 17, 40–42"
    assert ranges(tuple(range(0, 40, 2)), limit=3) == "0, 2, 4 … (+17 more)"
