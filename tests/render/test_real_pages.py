"""Real pages, as a person gets them: of the committed evidence and of a modelled night, in Chromium."""

import re
from pathlib import Path
from typing import Any

import pytest

from reprodb.cli import main
from tests.render.test_render_browser import OPEN_ALL, look

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
EVIDENCE = ("h200-suite-1", "h200-suite-2", "h200-edits")


def reprodb(*words: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    assert (stop.value.code or 0) == code


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of what an H200 measured, a diff of -fmad=false and the dossier of both upgrades beside it."""
    place = tmp_path_factory.mktemp("measured")
    database = ("--db", str(place / "evidence.db"))
    for bundle in EVIDENCE:
        reprodb("import", str(ROOT / "reports" / "evidence" / f"{bundle}.reprodb"), *database)
    reprodb("site", str(place / "site"), *database)
    reprodb("diff", "2:default", "2:no-fmad", *database, "--html", str(place / "fmad.html"), "--quiet")
    reprodb("dossier", "2", *database, "--html", str(place / "dossier.html"), "--quiet")
    return place


def pages(place: Path) -> list[Path]:
    return sorted(place.rglob("*.html"))


def visit(browser: Any, place: Path, width: int, *, script: bool) -> None:
    """Every page at that width: nothing asked of a network, no error, no sideways scrolling, a verdict."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        java_script_enabled=script,
        color_scheme="dark" if width == 3840 else "light",
    )
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    for path in pages(place):
        page.goto(path.as_uri())
        assert page.locator("h1").is_visible()
        if script:
            page.evaluate(OPEN_ALL)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path.name
    assert (said, [url for url in asked if not url.startswith("file:")]) == ([], [])
    context.close()


@pytest.mark.parametrize(("width", "script"), [(360, True), (1280, True), (3840, True), (1280, False)])
def test_pages_of_the_evidence(browser: Any, measured: Path, width: int, script: bool) -> None:
    visit(browser, measured, width, script=script)


def test_every_link_resolves(measured: Path) -> None:
    found = pages(measured)
    assert len(found) == 17  # an index, three runs, nine kernels, two upgrades, and the two beside the site
    for path in found:
        text = path.read_text()
        for target in re.findall(r'href="([^"#]+)"', text):
            assert (path.parent / target).is_file(), (path.name, target)
        for anchor in re.findall(r'href="#([^"]+)"', text):
            assert f'id="{anchor}"' in text, (path.name, anchor)


def told(browser: Any, path: Path) -> str:
    """A page's text as it stands on the screen, nothing unfolded."""
    page = browser.new_page()
    page.goto(path.as_uri())
    text = " ".join(page.locator("main").inner_text().split())
    page.close()
    return text


def test_the_page_of_fmad_alone_says_what_moved_whether_it_gates_and_what_to_do(
    browser: Any, measured: Path
) -> None:
    text = told(browser, measured / "fmad.html")
    start = text.index("latent does not gate")
    finding = text[start : text.index("latent does not gate", start + 1)]
    for words in (
        "sum_squares_tree",
        "flags (-fmad=true → -fmad=false)",
        "73 of 1,024 partials moved, the total did not",
        "first to differ",
        "FFMA 8 0 −8",
        "No action is needed for this input",
    ):
        assert words in finding, words


@pytest.mark.soak
def test_no_page_of_the_evidence_has_a_fault(browser: Any, measured: Path) -> None:
    for path in pages(measured):
        look(browser, path)


@pytest.mark.soak
def test_a_modelled_night_that_lost_its_determinism(browser: Any, tmp_path: Path) -> None:
    """A kernel without its barrier, and one that is as it should be, on the model."""
    words = (
        "--device",
        "model",
        "--repetitions",
        "5",
        "--profile",
        "default",
        "--db",
        str(tmp_path / "n.db"),
    )
    where = ("--store", str(tmp_path / "store"), "--out", str(tmp_path), "--quiet")
    reprodb("nightly", "--kernel", "sum_squares_tree", *words, *where)
    suite = str(ROOT / "tests" / "suites" / "cases")
    reprodb("nightly", "--suite", suite, "--kernel", "barrier_missing", *words, *where, code=3)
    reprodb("site", str(tmp_path / "site"), "--db", str(tmp_path / "n.db"))
    visit(browser, tmp_path, 1280, script=True)
    text = told(browser, tmp_path / "run-2.html")
    for sentence in (
        "No GPU ran: a CPU executed the compiler's PTX bit for bit.",
        "Determinism lost in barrier_missing under default.",
        "determinism lost gates",
        "of 5 repetitions of sums differ from the most frequent pattern",
        "Look for a race or a read of unset memory before anything else.",
        "compute-sanitizer --tool racecheck",
    ):
        assert sentence in " ".join((text, told_lane(tmp_path / "run-2.html"))), sentence
    look(browser, tmp_path / "run-2.html")


def told_lane(path: Path) -> str:
    """What the band above a page says."""
    (band,) = re.findall(r'<header class="lane.*?</header>', path.read_text(), re.DOTALL)
    return re.sub(r"<[^>]+>", "", band).replace("&#39;", "'")
