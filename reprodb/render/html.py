"""Self-contained HTML pages: one file, no network, readable without JavaScript."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from reprodb.digest import content_key
from reprodb.domain import Result, Run, Status
from reprodb.findings import Diff, MatrixRow, Verdict
from reprodb.ordering import read, svg
from reprodb.render.sources import NOTHING, Sources
from reprodb.render.text import joined, visible, when
from reprodb.render.timeline import STEPS, TURNS
from reprodb.render.typeset import typeset
from reprodb.render.words import ACCURACY, LANES, STANDINGS, VERDICTS, run_name

if TYPE_CHECKING:
    from jinja2 import Environment

    from reprodb.atlas.table import Atlas
    from reprodb.claims import Claim
    from reprodb.dossier import Dossier
    from reprodb.render.index import KernelEntry, RunEntry, UpgradeEntry
    from reprodb.render.views import Page

_STATES = {"same": "=", "differs": "≠", "unknown": "?"}


def report(
    run: Run,
    results: Iterable[Result],
    diff: Diff | None = None,
    *,
    matrix: Sequence[MatrixRow] = (),
    sources: Sources = NOTHING,
    home: str = "",
) -> str:
    """The page of a run: its verdict where it was compared, its profile matrix and every result.

    `sources` fetch what values do not carry. `matrix` may be left out where the diff has one. `home` is the
    address of a site's index.
    """
    from reprodb.render.views import report_page

    return _comparison(run, report_page(run, tuple(results), diff, matrix, sources), home)


def diff(value: Diff, sources: Sources = NOTHING) -> str:
    """The page of a diff of two runs, or of a nightly with its references."""
    from reprodb.render.views import diff_page

    return _comparison(value.candidate, diff_page(value, sources), "")


def dossier(value: "Dossier", sources: Sources = NOTHING, *, home: str = "") -> str:
    """The page of a toolkit upgrade: every kernel under the old and the new toolchain."""
    from reprodb.render.dossier import dossier_page

    view = dossier_page(value, sources)
    return _page(
        "dossier.html",
        title=f"{view.top.headline} · upgrade",
        view=view,
        lane=value.candidate.lane,
        stamp=_stamp(value.candidate),
        home=home,
    )


def history(
    kernel: str, entries: Iterable[tuple[Run, Result]], *, nights: Iterable[Run] = (), home: str = ""
) -> str:
    """The page of a kernel: a strip over the runs for each case, profile, lane and GPU; newest first in.

    `nights` are all nightlies: those of a scope's suite, lane and GPU that lack its row show in its strip.
    """
    from reprodb.render.history import history_page
    from reprodb.render.timeline import moments

    view = history_page(kernel, moments(entries), tuple(nights))
    return _page(
        "history.html",
        title=f"{visible(kernel)} · history",
        view=view,
        lane=view.lane,
        band="Measured and modelled results, apart",
        stamp="Made by reprodb from recorded values.",
        home=home,
    )


def index(
    runs: "Sequence[RunEntry]", kernels: "Sequence[KernelEntry]", upgrades: "Sequence[UpgradeEntry]" = ()
) -> str:
    """The front page of a site; runs newest first."""
    from reprodb.render.index import index_page

    return _page(
        "index.html",
        title="reprodb: runs and kernels",
        view=index_page(runs, kernels, upgrades),
        lane=None,
        band="All runs",
        stamp="Made by reprodb from recorded values.",
        home="",
    )


def _tree(result: Result) -> str:
    """The drawing of a small tree of additions, where one was measured."""
    from markupsafe import Markup

    found = result.fingerprint
    return Markup(svg(read(found.tree))) if found and found.tree else ""  # noqa: S704 -- numbers of our own


def claim(card: "Claim") -> str:
    """The page of a claim card."""
    worst = next((p for p in card.promises if p.standing.value == "broken"), None)
    done = card.result.status is Status.OK
    mark, tone = STANDINGS["broken" if worst or not done else "held"]
    if done and not worst and not card.result.kernel.determinism.guaranteed:
        mark, tone = VERDICTS[Verdict.CHURN].mark, "quiet"
    return _page(
        "claim.html",
        title=f"{card.result.kernel.name} · claim",
        view=card,
        tree=_tree(card.result),
        name=run_name(card.run),
        lane=card.run.lane,
        mark=mark,
        tone=tone,
        stamp=_stamp(card.run),
        home="",
    )


def atlas(value: "Atlas") -> str:
    """The page of the math atlas: which functions move at which step of the toolkit."""
    from reprodb.render.atlas_page import atlas_page

    view = atlas_page(value)
    return _page(
        "atlas.html", title="math atlas · reprodb", view=view, lane=value.lane, stamp=view.stamp, home=""
    )


def fingerprint() -> str:
    """Changes when a page of the same values would look different: code, templates and style of renderers."""
    folder = files("reprodb.render")
    sources = [*folder.iterdir(), *(folder / "templates").iterdir()]
    texts = {f.name: f.read_text(encoding="utf-8") for f in sources if f.is_file()}
    return content_key("reprodb.render", *(part for name in sorted(texts) for part in (name, texts[name])))


def prepare() -> None:
    """Compile the templates of a run's page ahead of it: that takes longer than the page itself."""
    import reprodb.render.views  # noqa: F401 -- loaded now, so that the page need not

    for name in ("comparison.html", "page.html", "parts.html"):
        _environment().get_template(name)


def _comparison(run: Run, view: "Page", home: str) -> str:
    return _page(
        "comparison.html",
        title=f"{view.top.headline} · {run_name(run)}",
        view=view,
        lane=run.lane,
        stamp=_stamp(run),
        home=home,
    )


def _stamp(run: Run) -> str:
    return f"Made by reprodb {run.environment.reprodb} from the recorded values of run {run.uid}."


def _page(template: str, **context: Any) -> str:
    return _without_blank_lines(_environment().get_template(template).render(context))


def _without_blank_lines(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if line.strip()) + "\n"


def _asset(name: str) -> str:
    """A file beside the templates, as it stands between its tags: the policy's hash covers every byte."""
    text = (files("reprodb.render") / "templates" / name).read_text(encoding="utf-8")
    return _without_blank_lines(text).strip()


def _source_hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def policy(style: str, script: str) -> str:
    """The content security policy: this style, this script, nothing from anywhere."""
    return (
        f"default-src 'none'; style-src {_source_hash(style)}; script-src {_source_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _finalize(value: Any) -> Any:
    """Every text on its way out: steering characters shown, length bounded; then Jinja escapes it."""
    from markupsafe import Markup

    return visible(str(value)) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("reprodb.render", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    style, script = _asset("style.css"), _asset("enhance.js")
    environment.globals |= {
        "style": Markup(style),  # noqa: S704 -- shipped with the package
        "script": Markup(script),  # noqa: S704 -- shipped with the package
        "policy": policy(style, script),
        "verdicts": VERDICTS,
        "accuracies": ACCURACY,
        "states": _STATES,
        "lanes": LANES,
        "steps": STEPS,
        "turn_names": TURNS,
        "standings": STANDINGS,
    }
    filters: dict[str, Any] = {
        "n": lambda value: f"{value:,}",
        "signed": lambda value: f"{value:+,}".replace("-", "−"),
        "rel": lambda value: f"{value:.3e}" if isinstance(value, float) else str(value),
        "short": lambda text: text[:8],
        "joined": lambda names: joined(list(names)),
        "when": when,
        "typeset": typeset,
    }
    environment.filters |= filters
    return environment
