"""Sentences as HTML: what a line should not break stands whole, bits and digests stand as code."""

import re
from typing import TYPE_CHECKING

from reprodb.render.text import visible

if TYPE_CHECKING:
    from markupsafe import Markup

# Each is short: a page never scrolls sideways for one.
_CODE = r"0x[0-9a-f]{1,16}\b|\b(?=[a-f]*\d)[0-9a-f]{12,64}\b"
_WHOLE = "|".join(
    (
        r"(?<![\w.-])--?[A-Za-z][\w=+]{0,20}(?![\w+-])",  # -fmad=false
        r"\b[A-Z][A-Z0-9.]{1,13} [\d,]{1,5} → [\d,]{1,5}\b",  # FFMA 8 → 0
        r"\b(?:nvrtc|nvcc|ptxas|version) [\d.]{2,8}\d(?: → [\d.]{2,8}\d)?",
        r"\b\d{4}-\d\d-\d\d(?: \d\d:\d\d UTC)?\b",
        r"(?<![\w.-])(?=[\w-]*\d|no-)[A-Za-z_]\w{0,8}(?:-\w{1,8}){1,2}(?![\w-]|\.\w)",  # nvcc12-no-fmad
    )
)
_TOKEN = re.compile(f"(?P<code>{_CODE})|(?P<whole>{_WHOLE})")


def typeset(text: object) -> "Markup":
    """A line of text, escaped; steering characters are shown and its length is bounded, as everywhere."""
    from markupsafe import Markup, escape

    shown = visible(str(text))
    parts, at = [], 0
    for found in _TOKEN.finditer(shown):
        tag, end = ("<code>", "</code>") if found["code"] else ('<span class="whole">', "</span>")
        parts += [escape(shown[at : found.start()]), Markup(tag), escape(found.group()), Markup(end)]  # noqa: S704 -- tags of our own
        at = found.end()
    return Markup("").join([*parts, escape(shown[at:])])
