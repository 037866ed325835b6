"""Where a page fetches what values do not carry: pattern bytes, code texts, the past of a row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reprodb.domain import Result
from reprodb.render.timeline import Moment

# SHA-256 of a pattern → its bytes; raises LookupError or StoreError where nobody has them.
Fetch = Callable[[str], bytes]
# Key of an artifact → its PTX and SASS.
CodeTexts = Callable[[str], tuple[str | None, str | None]]
# A result → the moments of its kernel, case and profile, newest first.
Past = Callable[[Result], Sequence[Moment]]


@dataclass(frozen=True, slots=True)
class Sources:
    """Each may be absent; what it would have shown is then left out."""

    fetch: Fetch | None = None
    code_texts: CodeTexts | None = None
    past: Past | None = None
