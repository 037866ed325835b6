"""Where a page fetches what values do not carry: pattern bytes, code texts, the past of a row, its claim."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reprodb.domain import Result, Run
from reprodb.render.timeline import Moment

if TYPE_CHECKING:
    from reprodb.claims import Claim

# SHA-256 of a pattern → its bytes; raises LookupError or StoreError where nobody has them.
Fetch = Callable[[str], bytes]
# Key of an artifact → its PTX and SASS.
CodeTexts = Callable[[str], tuple[str | None, str | None]]
# A result → the moments of its kernel, case and profile, newest first.
Past = Callable[[Result], Sequence[Moment]]
# A result of the page's run → its claim card.
Claims = Callable[[Result], "Claim"]
# Key of an artifact and `ptx` or `sass` → the address of the whole text; None where nobody has it.
CodeLinks = Callable[[str, str], str | None]


@dataclass(frozen=True, slots=True)
class Sources:
    """Each may be absent; what it would have shown is then left out.

    `nights` are the nightlies of the run's suite, lane and GPU up to it: a strip shows those without its row.
    """

    fetch: Fetch | None = None
    code_texts: CodeTexts | None = None
    past: Past | None = None
    claims: Claims | None = None
    code_links: CodeLinks | None = None
    nights: tuple[Run, ...] = ()


NOTHING = Sources()
