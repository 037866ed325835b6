"""Sentences as HTML: not a character more or less than the text, harmless, short pieces kept whole."""

import html
import re

from hypothesis import given
from hypothesis import strategies as st

from reprodb.render.text import visible
from reprodb.render.typeset import typeset
from tests.render.samples import HOSTILE

WORDS = st.sampled_from(
    [
        "-fmad=false",
        "cuda12-no-fmad",
        "0x4b25426d",
        "FFMA 8 → 0",
        "<b>",
        "&",
        " ",
        "(",
        "2026-03-02 04:30 UTC",
    ]
)


def bare(text: object) -> str:
    """What a reader sees of it."""
    return html.unescape(re.sub(r'</?(?:code|span class="whole"|span)>', "", str(typeset(text))))


@given(st.one_of(st.text(max_size=600), st.lists(WORDS, max_size=30).map("".join)))
def test_a_reader_sees_the_text_as_it_is(text: str) -> None:
    assert bare(text) == visible(text)


@given(st.one_of(st.text(max_size=600), st.lists(WORDS, max_size=30).map("".join)))
def test_no_markup_but_its_own_and_no_long_piece_that_cannot_break(text: str) -> None:
    made = str(typeset(text))
    assert set(re.findall(r"<[^>]*>", made)) <= {"<code>", "</code>", '<span class="whole">', "</span>"}
    assert all(len(piece) <= 30 for piece in re.findall(r'<span class="whole">([^<]*)', made))


def test_names_options_and_counts_stay_whole_and_bits_are_code() -> None:
    made = typeset(
        "flags (-fmad=true → --fmad=false); FFMA 8 → 0; under nvcc12-no-fmad: 0x4b25426d, 1.739e-09."
    )
    assert re.findall(r'<span class="whole">([^<]*)', made) == [
        "-fmad=true",
        "--fmad=false",
        "FFMA 8 → 0",
        "nvcc12-no-fmad",
    ]
    assert re.findall(r"<code>([^<]*)", made) == ["0x4b25426d"]
    assert "<script" not in typeset(HOSTILE)
