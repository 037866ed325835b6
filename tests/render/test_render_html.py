"""HTML pages as text: what must be on them, what may never be, and that equal values give equal bytes."""

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from reprodb.domain import Lane
from reprodb.findings import Diff
from reprodb.headline import counted
from reprodb.render import html
from reprodb.render.finding import CARDS
from reprodb.render.index import kernel_entry, run_entry
from reprodb.render.sources import Sources
from reprodb.render.timeline import moments
from tests.render import samples

VOID = {"meta", "br", "path", "rect", "input", "link"}


class Outline(HTMLParser):
    """Tags, attributes and text of a page; fails on tags that do not nest."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script", "title"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def pages() -> dict[str, str]:
    night, lane = samples.night(), Lane.MEASURED
    hostile = samples.hostile()
    return {
        "quiet": html.report(samples.run(2), night, samples.quiet(), sources=samples.SOURCES),
        "contraction": html.diff(samples.contraction(), sources=samples.SOURCES),
        "eventful": html.diff(samples.eventful(), sources=samples.WHOLE),
        "dossier": html.dossier(samples.dossier(), samples.WHOLE),
        "alone": html.report(samples.run(1, lane), samples.night(lane), matrix=samples.matrix()),
        "hostile": html.report(hostile.candidate, [c.either for c in hostile.comparisons], hostile),
    }


PAGES = pages()


@pytest.mark.parametrize("name", PAGES)
def test_equal_values_give_equal_bytes(name: str) -> None:
    assert pages()[name] == PAGES[name]


@pytest.mark.parametrize("name", PAGES)
def test_pages_nest_and_have_landmarks(name: str) -> None:
    outline = Outline(PAGES[name])
    tags = [tag for tag, _ in outline.tags]
    assert tags.count("h1") == tags.count("main") == tags.count("header") - tags.count("article") == 1
    ids = [attrs["id"] for _, attrs in outline.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = {attrs["href"] for tag, attrs in outline.tags if tag == "a"}
    assert targets <= {f"#{i}" for i in ids}
    labels = {label for _, attrs in outline.tags for label in (attrs.get("aria-labelledby") or "").split()}
    assert labels <= set(ids)


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_loaded_and_only_our_style_and_script_run(name: str) -> None:
    page = PAGES[name]
    outline = Outline(page)
    policy = next(a["content"] for t, a in outline.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    for tag in ("style", "script"):
        (body,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    for _, attrs in outline.tags:
        assert not {"src", "style", "srcset", "action"} & attrs.keys()
        assert not any(key.startswith("on") for key in attrs)
    assert "http://" not in page
    assert "https://" not in page
    assert "url(" not in page


def test_a_history_shows_what_changed_when() -> None:
    page = html.history("sum_squares_tree", samples.past())
    outline = Outline(page)
    assert "Bits moved 1 time over 40 runs." in outline.text
    assert (
        "run 20 T nvrtc 12.6.85 → nvrtc 13.5.37; F flags --fmad=false → --fmad=true, bits moved"
        in outline.text.replace(" ;", ";").replace(" ,", ",")
    )
    assert "measured on NVIDIA H200" in outline.text
    assert page == html.history("sum_squares_tree", samples.past())
    cells = [a for t, a in outline.tags if t == "i" and (a.get("title") or "").startswith("run ")]
    assert len(cells) == 43
    assert html.history("k", ()).count("<h1") == 1


def test_a_finding_has_the_strip_of_its_row() -> None:
    found = moments(samples.past())
    page = html.diff(samples.eventful(), Sources(past=lambda _: found))
    assert "Over the runs" in Outline(page).text


def test_a_clean_night_is_short_and_quiet() -> None:
    outline = Outline(PAGES["quiet"])
    assert "Nothing moved" in outline.text
    assert not any(tag == "article" for tag, _ in outline.tags)
    assert not any(tag == "details" and "open" in attrs for tag, attrs in outline.tags)


def test_the_lane_stands_above_everything() -> None:
    assert Outline(PAGES["quiet"]).text.index("Modelled lane") < Outline(PAGES["quiet"]).text.index("Nothing")
    assert "Measured lane" in Outline(PAGES["eventful"]).text


def test_the_contraction_page_says_what_moved_and_that_it_does_not_gate() -> None:
    text = Outline(PAGES["contraction"]).text
    for words in (
        "latent does not gate",
        "The build moved: -fmad=true → -fmad=false",
        "73 of 1,024 elements differ",
        "at most 2 ULP",
        "first to differ",
        "FFMA 4 0 −4",
        "FMUL 0 4 +4",
        "0x461f8aed",
        "never gate",
        "No action is needed",
    ):
        assert words in text, words
    page = PAGES["contraction"]
    assert "<del>    fma.rn.f32 %f2, %f1, %f1, 0f3E800000;</del>" in page
    assert "8, 32–33, 58, 66–67" in page
    (path,) = re.findall(r'<path class="moved" d="([^"]+)"/>', page)
    assert path.count("M") == 73


def test_the_page_of_lost_determinism_says_what_to_do() -> None:
    text = Outline(PAGES["eventful"]).text
    assert "3 of 100 repetitions" in text
    assert "first third" in text
    assert "Code the same, bits changed." in text
    assert "compute-sanitizer --tool racecheck" in text
    assert text.index("determinism lost gates") < text.index("changed gates") < text.index("does not gate")


def test_a_latent_arrival_order_kernel_shows_patterns_and_its_own_functions() -> None:
    """A witness moved beside a churning result: a histogram, no single pattern, no other kernel's counts."""
    row, churning = samples.latent(), samples.churn()
    sides = []
    for side, found in ((churning.baseline, row.baseline), (churning.candidate, row.candidate)):
        assert side is not None
        assert found is not None
        assert found.build is not None
        assert found.build.code is not None
        counts = (*found.build.code.counts, replace(found.build.code.counts[0], function="other"))
        build = replace(found.build, code=replace(found.build.code, counts=counts))
        sides.append(replace(side, build=build))
    value = replace(row, kernel="a", baseline=sides[0], candidate=sides[1], churn=churning.churn)
    text = Outline(html.diff(Diff(None, samples.run(), (value,)))).text
    assert "Baseline, above" in text
    assert "Result total" not in text
    assert "In the same source, of other kernels, these differ too: other." in text


def test_a_first_night_has_no_mark_of_sameness() -> None:
    """Nothing was compared: the mark is that of a missing baseline."""
    row = next(c for c in samples.eventful().comparisons if c.baseline is None)
    page = html.diff(Diff(None, samples.run(), (row,), headline="first night"))
    (heading,) = re.findall(r"<h1.*?</h1>", page)
    assert "○" in heading
    assert "First night." in heading


def test_the_compiler_s_words_are_there() -> None:
    assert "identifier &#34;partialz&#34; is undefined" in PAGES["eventful"]


def test_a_run_alone_shows_patterns_of_arrival_order_kernels() -> None:
    text = Outline(PAGES["alone"]).text
    assert "nothing compared" in text
    assert "9 patterns in 100, spread 9 ULP" in text


def test_hostile_text_is_harmless() -> None:
    page = PAGES["hostile"]
    outline = Outline(page)
    assert page.count("<script>") == 1
    assert "alert(" in outline.text
    assert "\u202e" not in page
    assert "\x1b" not in page
    assert "A" * 500 not in page
    assert (
        max(len(line) for line in re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL).splitlines())
        < 12_000
    )


def test_many_findings_stay_below_a_megabyte() -> None:
    """Ten kernels under six profiles, every one moved, each pair of artifacts with its own long texts."""
    rows = []
    for number in range(60):
        row = samples.latent()
        sides = []
        for side in (row.baseline, row.candidate):
            assert side is not None
            assert side.build is not None
            build = replace(side.build, key=f"{number}-{side.build.key}")
            sides.append(replace(side, build=build, profile=f"p{number % 6}"))
        rows.append(replace(row, kernel=f"kernel_{number // 6}", baseline=sides[0], candidate=sides[1]))
    value = Diff(samples.run(1), samples.run(2), tuple(rows))

    def texts(key: str) -> tuple[str | None, str | None]:
        ptx, sass = samples.code_texts(key)
        return (ptx or "") * 40, (sass or "") * 40

    page = html.diff(value, sources=replace(samples.WHOLE, code_texts=texts))
    assert len(page.encode()) < 1_000_000
    # The first ones carry their claim cards, the others name the command.
    assert page.count("What is promised, and what was seen") == CARDS
    assert page.count("Its claim card") == 60 - CARDS


# --- Claim cards, whole texts, a first night ------------------------------------------------------


def test_a_finding_carries_its_claim_card_folded() -> None:
    page = html.diff(samples.contraction(), samples.WHOLE)
    outline = Outline(page)
    assert "Claim card Sum of x*x + 0.25 over 4,194,915 elements is 0x4b25426d in all 100" in outline.text
    assert "sumSquaresPartials: 20 registers a thread, 0 B of shared memory a block" in outline.text
    assert "other inputs, sizes and launch shapes" in outline.text
    assert '<details class="card">' in page


def test_a_single_page_names_the_command_that_prints_the_whole_code() -> None:
    page = html.diff(samples.contraction(), samples.SOURCES)
    assert "reprodb code 1:default 1:no-fmad sum_squares_tree --ptx --sass --full" in page
    assert "data:" not in page


def test_a_page_of_a_site_links_to_the_whole_code() -> None:
    sources = replace(samples.SOURCES, code_links=lambda key, kind: f"../code/{key}/{kind}.txt")
    outline = Outline(html.diff(samples.contraction(), sources))
    links = [a["href"] for tag, a in outline.tags if tag == "a" and "code/" in (a.get("href") or "")]
    assert len(links) == 4
    assert "reprodb code" not in outline.text


def test_a_command_quotes_what_a_shell_would_read() -> None:
    row = samples.latent()
    assert row.baseline is not None
    assert row.candidate is not None
    odd = replace(row.candidate, profile="a b;$(x)")
    page = html.diff(
        Diff(None, samples.run(2), (replace(row, candidate=odd, reference_run=1),)), samples.SOURCES
    )
    assert "&#39;2:a b;$(x)&#39;" in page


def test_cells_of_the_matrix_lead_to_their_findings() -> None:
    page = PAGES["contraction"]
    (cell,) = re.findall(r'<td role="cell" class="cell warn">(.*?)</td>', page)
    assert cell.startswith('<a href="#f1"><b>A′</b><span class="hidden"> latent</span></a>')


def test_the_matrix_says_the_run_hash() -> None:
    assert "A 0x4b25426d run hash 0x8189389fe1bc0a65" in Outline(PAGES["quiet"]).text


def test_counts_stand_once_on_a_page() -> None:
    value = replace(samples.quiet(), headline="clean: every fixed-order kernel has its bits; 1 churn, 5 same")
    rows = replace(value, comparisons=(*value.comparisons[:5], samples.churn()))
    assert counted(rows.comparisons) == "1 churn, 5 same"
    (heading,) = re.findall(r"<h1.*?</h1>", html.diff(rows))
    assert heading.endswith("<span>Clean: every fixed-order kernel has its bits.</span></h1>")


def test_what_to_do_stands_before_the_evidence() -> None:
    """Verdict, gate, sentence, what to do: then both sides, bits, layers and code."""
    text = Outline(PAGES["eventful"]).text
    finding = text[text.index("The code is the same and three repetitions differ.") :]
    places = [finding.index(words) for words in ("What to do next", "racecheck", "Both sides", "Layers")]
    assert places == sorted(places)


def test_a_diff_of_two_builds_names_them_at_the_top() -> None:
    value = replace(samples.contraction(), comparisons=(samples.latent(),))
    assert "default → no-fmad , two builds inside nightly 1" in Outline(html.diff(value)).text


def test_many_reasons_are_counted_at_the_top() -> None:
    """Every row tells its own again."""
    value = replace(samples.eventful(), reasons=tuple(f"reason number {n}" for n in range(60)))
    text = Outline(html.diff(value)).text
    assert "Reason number 4. and 55 more, each with its row below." in text
    assert "eason number 5." not in text


def test_the_front_page_leads_with_a_fortnight_of_runs() -> None:
    runs = [samples.run(n) for n in range(20, 0, -1)]
    entries = [run_entry(run, samples.night(), None, f"runs/run-{run.id}.html") for run in runs]
    page = html.index(entries, [kernel_entry("sum_squares_tree", samples.past(), "kernels/k.html")])
    text = Outline(page).text
    assert "20 runs 1 kernel" in text
    assert text.index(entries[13].name) < text.index("6 older runs") < text.index("sum of x*x + 0.25")


def test_charts_of_a_group_share_one_legend_and_one_scale() -> None:
    page = PAGES["quiet"]
    groups = page.count('<div class="charts">')
    assert groups == page.count("Baseline, above") == 2
    assert set(re.findall(r'<svg viewBox="-4 0 (\d+) 146"', page)) == {"368"}


def test_findings_of_one_kernel_are_told_apart_by_their_cases() -> None:
    rows = (
        samples.changed(),
        replace(samples.changed(), case="other-7"),
        replace(samples.latent(), kernel="k"),
    )
    text = Outline(html.diff(replace(samples.eventful(), comparisons=rows))).text
    contents = text[text.index("What moved") : text.index("Both sides")]
    assert contents.index("sum_squares_tree other-7") < contents.index("k default")


def test_a_run_says_why_a_result_is_missing() -> None:
    from reprodb.domain import Status
    from tests.builders import make_result, make_run

    failed = make_result(status=Status.LAUNCH_FAILED, error="python: exit code 3\n<b>why</b>")
    page = html.report(make_run(1), [failed])
    assert "sum_squares_tree, default: launch failed: python: exit code 3" in Outline(page).text
    assert "<b>why" not in page
