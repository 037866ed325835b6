"""Pages in headless Chromium: no console errors, no faults for assistive tools, no sideways scrolling."""

from pathlib import Path
from typing import Any

import pytest

from reprodb.atlas.reading import read
from reprodb.claims import claim
from reprodb.domain import Lane
from reprodb.render import html
from reprodb.render.index import kernel_entry, run_entry
from tests.render import samples

pytestmark = pytest.mark.browser

EVIDENCE = Path(__file__).parents[2] / "reports" / "evidence"

NAMES = (
    "quiet",
    "contraction",
    "eventful",
    "alone",
    "hostile",
    "history",
    "index",
    "claim",
    "dossier",
    "atlas",
)
# Between them these have every part of a page and every tone; axe is slow and sees the others in the soak.
EVERY_PART = ("eventful", "history", "dossier")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages as files, as a person opens them."""
    place = tmp_path_factory.mktemp("pages")
    hostile, lane = samples.hostile(), Lane.MEASURED
    pages = {
        "quiet": html.report(samples.run(2), samples.night(), samples.quiet(), sources=samples.SOURCES),
        "contraction": html.diff(samples.contraction(), sources=samples.SOURCES),
        "eventful": html.diff(samples.eventful(), sources=samples.WHOLE),
        "alone": html.report(samples.run(1, lane), samples.night(lane), matrix=samples.matrix()),
        "hostile": html.report(hostile.candidate, [c.either for c in hostile.comparisons], hostile),
    }
    pages["history"] = html.history("sum_squares_tree", samples.past())
    runs = [run_entry(samples.run(2), samples.night(), samples.quiet(), "runs/run-2.html")]
    kernels = [kernel_entry("sum_squares_tree", samples.past(), "kernels/sum_squares_tree.html")]
    pages["index"] = html.index(runs, kernels)
    pages["claim"] = html.claim(claim(samples.run(1), samples.tree(), samples.past()))
    pages["dossier"] = html.dossier(samples.dossier(), samples.WHOLE)
    pages["atlas"] = html.atlas(read(EVIDENCE / "atlas-h200.json.xz"))
    assert tuple(pages) == NAMES
    for name, page in pages.items():
        (place / f"{name}.html").write_text(page)
    return place


OPEN_ALL = "document.querySelectorAll('details').forEach(d => { d.open = true })"


def faults(page: Any, *rules: str) -> list[str]:
    """What axe-core finds that is more than minor; all rules, or the named ones."""
    from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

    # Of what passes it would list every element, megabytes on a page with all its parts.
    options: dict[str, list[str]] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = list(rules)
    found = Axe().run(page, options=options).response["violations"]
    return [f"{v['id']}: {v['nodes'][0]['html'][:160]}" for v in found if v["impact"] != "minor"]


def test_pages_load_without_an_error_and_ask_for_nothing(browser: Any, folder: Path) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    for name in NAMES:
        page.goto((folder / f"{name}.html").as_uri())
        page.evaluate(OPEN_ALL)
    assert said == []
    assert [url for url in asked if not url.startswith("file:")] == []
    context.close()


def look(browser: Any, path: Path) -> None:
    """A page has no fault in the light, and no fault of contrast in the dark."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    page = context.new_page()
    page.goto(path.as_uri())
    page.evaluate(OPEN_ALL)
    assert faults(page) == []
    page.emulate_media(color_scheme="dark")
    assert faults(page, "color-contrast") == []
    context.close()


@pytest.mark.parametrize("name", EVERY_PART)
def test_no_faults(browser: Any, folder: Path, name: str) -> None:
    look(browser, folder / f"{name}.html")


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in NAMES if name not in EVERY_PART])
def test_no_faults_on_the_other_pages(browser: Any, folder: Path, name: str) -> None:
    look(browser, folder / f"{name}.html")


@pytest.mark.parametrize("width", [360, 1280, 3840])
def test_no_sideways_scrolling(browser: Any, folder: Path, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    for name in NAMES:
        page.goto((folder / f"{name}.html").as_uri())
        page.evaluate(OPEN_ALL)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    context.close()


def test_the_page_is_whole_without_javascript(browser: Any, folder: Path) -> None:
    context = browser.new_context(java_script_enabled=False, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto((folder / "contraction.html").as_uri())
    assert page.locator("h1").inner_text().endswith("No result moved; 1 kernel has witness bits that did.")
    page.locator("summary", has_text="PTX side by side").click()
    assert page.locator("del", has_text="fma.rn.f32").is_visible()
    assert page.locator("button").count() == 0
    context.close()


def test_a_keyboard_reaches_the_verdict_and_opens_what_is_folded(browser: Any, folder: Path) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto((folder / "quiet.html").as_uri())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the verdict"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#main"
    page.locator("summary", has_text="5 same").focus()
    page.keyboard.press("Enter")
    assert page.locator("td", has_text="0x4b25426d").first.is_visible()
    context.close()


def test_tables_sort_by_a_click_on_a_heading(browser: Any, folder: Path) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto((folder / "alone.html").as_uri())
    heading = page.locator(".results th, .rest th").filter(has_text="Profile").first
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    first = page.locator("table[data-sortable] tbody tr").first.locator("td").first.inner_text()
    assert first.startswith("cuda12")
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    context.close()


def test_long_tables_can_be_filtered(browser: Any, folder: Path) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 900})
    page = context.new_page()
    page.goto((folder / "alone.html").as_uri())
    rows = page.locator("table[data-sortable] tbody tr")
    assert rows.count() == 15
    page.get_by_label("Filter").fill("no-fmad KAHAN")
    shown = [row for row in rows.all() if row.is_visible()]
    assert len(shown) == 2
    assert all("sum_squares_kahan_atomic" in row.inner_text() for row in shown)
    assert page.locator(".filter output").inner_text() == "2 of 15 rows"
    page.get_by_label("Filter").fill("")
    assert rows.last.is_visible()
    # On a telephone the headings are hidden; a keyboard that reaches them brings them back.
    page.get_by_label("Filter").press("Tab")
    assert page.locator("thead button").first.is_visible()
    assert page.evaluate("document.activeElement.getBoundingClientRect().height") > 10
    context.close()


def test_a_clean_night_leads_with_its_verdict(browser: Any, folder: Path) -> None:
    """Verdict, counts, environment and the whole matrix are within the first screen of a laptop."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto((folder / "quiet.html").as_uri())
    box = page.locator(".matrix table").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= 900
    context.close()
