"""Terminal, JUnit and GitHub: the same values in other clothes, in order, bounded and harmless."""

import io
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as Tree

import pytest
from rich.console import Console

from reprodb.cli.judging import write_github
from reprodb.domain import Accuracy, CanaryOutcome, Kernel
from reprodb.findings import Comparison, Diff, Verdict
from reprodb.render import github, junit, terminal
from reprodb.render.timeline import moments
from tests.render import samples


def printed(value: Diff, width: int | None = None, *, quiet: bool = False) -> str:
    """What a terminal of that width shows, or a pipe."""
    out = io.StringIO()
    console = terminal.console(out)
    if width is not None:
        console = Console(
            file=out, width=width, force_terminal=True, markup=False, highlight=False, no_color=True
        )
    terminal.diff(console, value, quiet=quiet)
    return out.getvalue()


# --- Terminal ----------------------------------------------------------------------------------


def test_the_verdict_comes_first_then_the_lane_then_the_matrix_then_rows() -> None:
    text = printed(samples.eventful())
    order = [
        "! Determinism lost",
        "MEASURED lane",
        "profile matrix",
        "! determinism lost",
        "≠ changed",
        "≃ latent",
        "= 1 row: the same",
    ]
    places = [text.index(words) for words in order]
    assert places == sorted(places)


def test_a_pipe_gets_plain_lines() -> None:
    text = printed(samples.eventful())
    assert "\x1b" not in text
    row = next(line for line in text.splitlines() if "≠ changed" in line)
    assert "0x4b25426d → 0x4b25426f" in row
    assert "the total is 2 ULP higher" in row


def test_a_first_night_is_the_matrix_and_nothing_row_by_row() -> None:
    rows = tuple(
        replace(c, verdict=Verdict.NO_BASELINE, baseline=None, churn=None)
        for c in samples.quiet().comparisons
    )
    words = "first night: 15 rows recorded, and nothing to compare with yet"
    text = printed(replace(samples.quiet(), baseline=None, comparisons=rows, headline=words, notes=()))
    lines = text.splitlines()
    assert lines[0] == "○ First night: 15 rows recorded, and nothing to compare with yet."
    assert "Nothing is accepted in this scope yet" not in text
    assert "no baseline" not in text
    assert "sum_squares_tree: A 0x4b25426d run hash 0x8189389fe1bc0a65, witness 9f2c11d0" in lines
    assert len(lines) < 20


def test_a_first_night_has_no_table_of_rows_in_the_summary() -> None:
    rows = tuple(
        replace(c, verdict=Verdict.NO_BASELINE, baseline=None, churn=None)
        for c in samples.quiet().comparisons
    )
    text = github.summary(replace(samples.quiet(), baseline=None, comparisons=rows))
    assert f"○ {len(rows)} rows: no baseline yet." in text
    assert "Nothing is accepted" not in text


def test_quiet_is_the_verdict_and_the_lane() -> None:
    assert printed(samples.quiet(), quiet=True).splitlines() == [
        "= Nothing moved: 5 fixed-order results have the same bits as their references.",
        "MODELLED lane. No GPU ran: a CPU executed the compiler's PTX bit for bit.",
    ]


@pytest.mark.parametrize("width", [20, 40, 60, 89, 90, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for value in (samples.eventful(), samples.hostile()):
        plain = re.sub(r"\x1b\[[0-9;]*m", "", printed(value, width))
        assert max(len(line) for line in plain.splitlines()) <= width


def test_colour_goes_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    assert console.no_color


def test_hostile_text_cannot_steer_a_terminal() -> None:
    text = printed(samples.hostile())
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u200b]", text)
    assert "A" * 500 not in text


def test_show_and_history_and_runs() -> None:
    out = io.StringIO()
    console = terminal.console(out)
    terminal.show(console, samples.run(), samples.night(), samples.matrix())
    terminal.history(console, "sum_squares_tree", moments([(samples.run(n), samples.tree()) for n in (2, 1)]))
    terminal.runs(console, [samples.run(1, label="first")])
    text = out.getvalue()
    row = next(line for line in text.splitlines() if "sum_squares_tree " in line and "0x8189" in line)
    assert "1 pattern in 100, run_to_run" in row
    assert "0x4b25426d" in row
    assert "= same" in text
    assert "first" in text


# --- JUnit -------------------------------------------------------------------------------------


def cases(value: Diff) -> dict[str, Tree.Element]:
    root = Tree.fromstring(junit.diff(value).encode())  # noqa: S314 -- made above
    (suite,) = root.findall("testsuite")
    found = suite.findall("testcase")
    assert suite.get("tests") == root.get("tests") == str(len(found))
    for tag, key in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert suite.get(key) == str(sum(case.find(tag) is not None for case in found))
    return {f"{case.get('name')} {index}": case for index, case in enumerate(found)}


def test_one_case_a_comparison_and_a_canary() -> None:
    value = samples.eventful()
    assert len(cases(value)) == len(value.comparisons) + len(value.canaries)


def test_what_gates_fails_and_churn_passes_with_output() -> None:
    found = cases(samples.eventful())
    kinds = {child.get("type"): child.tag for case in found.values() for child in case if child.get("type")}
    assert kinds == {
        "determinism_lost": "failure",
        "changed": "failure",
        "missing": "failure",
        "no_result": "error",
    }
    churn = next(case for name, case in found.items() if name.startswith("sum_squares_atomic"))
    assert [child.tag for child in churn] == ["system-out"]
    assert "does not gate" in (churn[0].text or "")


def test_accuracy_outside_fails_although_the_bits_are_the_same() -> None:
    row = replace(samples.quiet().comparisons[0], accuracy=Accuracy.OUTSIDE)
    (case,) = cases(replace(samples.quiet(), comparisons=(row,), canaries=(), exit_code=3)).values()
    assert [child.get("type") for child in case] == ["accuracy_outside"]


def test_a_failed_canary_is_an_error() -> None:
    canaries = (CanaryOutcome("integer-sum", False, "The integer sum is off by 1."),)
    value = replace(samples.quiet(), canaries=canaries, exit_code=4)
    assert cases(value)["integer-sum 0"].find("error") is not None


def test_an_exit_code_that_no_row_explains_is_a_case() -> None:
    value = replace(samples.quiet(), comparisons=(), canaries=(), exit_code=4, headline="Nothing compared.")
    (case,) = cases(value).values()
    error = case.find("error")
    assert error is not None
    assert error.get("message") == "Nothing compared."


def test_junit_of_hostile_text_is_well_formed() -> None:
    text = junit.diff(samples.hostile())
    assert len(cases(samples.hostile())) == 3
    assert not re.search(r"[\x00-\x08\x0b-\x1f\ufffe\uffff\u202e]", text)


# --- GitHub ------------------------------------------------------------------------------------


def test_the_summary_is_worst_first() -> None:
    text = github.summary(samples.eventful())
    places = [text.index(words) for words in ("determinism lost |", "≠ changed", "≃ latent", "Arrival order")]
    assert places == sorted(places)
    assert text.startswith("## ! Determinism lost")
    assert "**Measured lane.**" in text


def test_the_summary_stays_within_its_limit() -> None:
    value = samples.eventful()
    many = replace(value, comparisons=value.comparisons * 600)
    whole = github.summary(many)
    assert len(whole.encode()) <= 1024 * 1024
    for limit in (1000, 5000, 20_000):
        text = github.summary(many, limit)
        assert len(text.encode()) <= limit
        assert "are left out here" in text
        assert "determinism lost" in text


def test_markdown_of_hostile_text_is_inert() -> None:
    text = github.summary(samples.hostile())
    allowed = {"<code>", "</code>", "<sub>", "</sub>"}
    assert set(re.findall(r"<[^>]*>", text)) <= allowed
    assert "\u202e" not in text
    for line in text.splitlines():
        if line.startswith("| ") and "---" not in line:
            assert line.count("|") in (8, 4)  # seven columns, or the matrix's three


def test_annotations_name_the_file_and_line_of_the_kernel() -> None:
    found = github.annotations(samples.eventful(), "kernels", lambda _: 17)
    assert found[0].startswith("::notice title=canary arrival-order is unusual::")
    assert found[1].startswith(
        "::error file=kernels/_lib/sum_squares.cu,line=17,"
        "title=determinism lost%3A sum_squares_tree%2C default::"
    )
    kinds = [line.split(" ")[0] for line in found]
    assert kinds == ["::notice", *["::error"] * 4, *["::warning"] * 2]


def test_at_most_ten_annotations_of_a_kind() -> None:
    value = samples.eventful()
    found = github.annotations(replace(value, comparisons=value.comparisons * 20))
    counts = {
        kind: sum(line.startswith(f"::{kind} ") for line in found) for kind in ("error", "warning", "notice")
    }
    assert counts == {"error": 10, "warning": 10, "notice": 1}
    assert "determinism lost" in found[1]


def test_annotations_cannot_be_broken_out_of() -> None:
    for line in github.annotations(samples.hostile()):
        assert "\n" not in line
        assert "\r" not in line
        head, _, message = line.removeprefix("::").partition("::")
        assert re.fullmatch(r"(error|warning|notice) [^:]*", head)
        assert "%0A" not in message.replace("%250A", "")


def test_a_source_outside_the_repository_has_no_place() -> None:
    row = samples.changed()
    assert row.candidate is not None
    outside = replace(row.candidate, kernel=replace(row.candidate.kernel, source="../../etc/passwd"))
    (line,) = github.annotations(Diff(None, samples.run(), (replace(row, candidate=outside),)), "kernels")
    assert "file=" not in line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("// sum\n__global__ void sum(float *x) {}\n", 2),
        ("__global__ void other();\n\n__global__ void\n__launch_bounds__(256)\nsum (float *x) {}\n", 5),
        ("__device__ float sum(float);\n", None),
    ],
)
def test_the_line_of_an_entry(text: str, line: int | None) -> None:
    assert github.entry_line(text, "sum") == line


def test_line_of_gets_the_kernel() -> None:
    seen: list[Kernel] = []

    def line_of(kernel: Kernel) -> int | None:
        seen.append(kernel)
        return None

    (text,) = github.annotations(Diff(None, samples.run(), (samples.changed(),)), line_of=line_of)
    assert seen == [samples.TREE]
    assert "line=1," in text


def churned_and_lost() -> Comparison:
    """An arrival-order result whose guaranteed witness showed several patterns."""
    return replace(samples.churn(), verdict=Verdict.DETERMINISM_LOST, loss=samples.lost().loss, gated=True)


def test_an_annotation_of_a_lost_witness_says_so_although_the_result_churns() -> None:
    (line,) = github.annotations(Diff(None, samples.run(), (churned_and_lost(),)))
    assert "3 of 100 repetitions of total differ: first third" in line
    assert "most frequent" not in line


def test_what_to_try_is_told_once() -> None:
    rows = tuple(
        replace(samples.lost(), kernel=f"tree_{n}", gate_reason="determinism lost") for n in range(4)
    )
    text = printed(replace(samples.eventful(), comparisons=rows))
    assert text.count("try: compute-sanitizer") == 2
    assert "and the same for the other 3 rows that lost it" in text
    assert "; determinism lost" not in text


def test_a_diff_that_is_given_runs_alone_annotates_the_checkout_s_suite(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    root = Path(__file__).parents[2]
    value = Diff(samples.run(1), samples.run(2), (samples.changed(),))
    environment = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(root)}
    write_github(value, environ=environment)
    source = (root / "kernels" / "_lib" / "sum_squares.cu").read_text().splitlines()
    (place,) = re.findall(r"::error file=kernels/_lib/sum_squares.cu,line=(\d+),", capsys.readouterr().err)
    assert "sumSquaresPartials" in source[int(place) - 1]
    # Another suite, or none: the path as the suite has it.
    for folder, run in ((tmp_path, samples.run(2)), (root, replace(samples.run(2), suite="other"))):
        write_github(replace(value, candidate=run), environ=environment | {"GITHUB_WORKSPACE": str(folder)})
        assert "::error file=_lib/sum_squares.cu,line=1," in capsys.readouterr().err
