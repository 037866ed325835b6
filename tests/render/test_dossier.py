"""The dossier of a toolkit upgrade: which profiles belong together, its verdict, its page, its JSON."""

import io
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from reprodb.cli import main
from reprodb.compare import Side
from reprodb.domain import Result, Status, Toolchain
from reprodb.dossier import Dossier, common_profiles, dossier, natural_pairs
from reprodb.errors import UsageError
from reprodb.policy import Policy
from reprodb.render import html, terminal
from reprodb.render import json as render
from reprodb.store import open_store
from tests.command import valid
from tests.render import samples


def of(results: tuple[Result, ...], pairs: tuple[tuple[str, str], ...] | None = None) -> Dossier:
    side = Side(samples.run(2), results)
    found = natural_pairs(results) if pairs is None else pairs
    return dossier(side, side, found, samples.nowhere, Policy(), now=samples.START)


def test_profiles_that_differ_in_their_toolkit_alone_belong_together() -> None:
    """fast-math has no partner, and no pair crosses flags."""
    assert natural_pairs(samples.night()) == (("cuda12", "default"), ("cuda12-no-fmad", "no-fmad"))


def test_of_three_toolkits_each_meets_the_next() -> None:
    tree = samples.tree("default")
    assert tree.build is not None
    rows = []
    for name, version in (("new", "13.10.1"), ("old", "12.6.85"), ("middle", "13.9.2")):
        build = replace(tree.build, toolchain=Toolchain("nvrtc", version, "", "wheel"))
        rows.append(replace(tree, profile=name, build=build))
    assert natural_pairs(rows) == (("middle", "new"), ("old", "middle"))


def test_results_that_were_never_built_have_no_partner() -> None:
    assert natural_pairs([replace(samples.tree(), build=None)]) == ()
    with pytest.raises(UsageError, match="no profiles that belong together"):
        of((samples.tree(),))


def test_an_upgrade_that_keeps_the_bits() -> None:
    found = samples.dossier()
    assert found.exit_code == 0
    assert found.headline == (
        "upgrading nvrtc 12.6.85 → 13.5.37 keeps every fixed-order bit; 4 churn, 2 same"
    )
    assert [leg.name for leg in found.legs] == ["cuda12 → default", "cuda12-no-fmad → no-fmad"]
    assert found.legs[0].parts == (("version", "12.6.85", "13.5.37"),)
    assert len(found.comparisons) == 6


def test_an_upgrade_that_moves_a_result_gates() -> None:
    moved = (samples.tree("cuda12"), samples.tree("default", bits=0x4B25426F))
    found = of(moved)
    assert found.exit_code == 1
    assert found.headline == (
        "upgrading nvrtc 12.6.85 → 13.5.37 moves the bits of sum_squares_tree; 1 changed"
    )
    page = html.dossier(found)
    assert "reprodb bless 2:default" in page
    assert '<a href="#f1">changed</a>' in page


def test_an_upgrade_that_moves_a_witness_is_reported() -> None:
    found = of((samples.tree("cuda12"), samples.tree("no-fmad")), (("cuda12", "no-fmad"),))
    assert found.exit_code == 0
    assert "keeps every fixed-order result and moves witness bits in 1 row" in found.headline
    assert found.legs[0].options == (("--fmad=true",), ("--fmad=false",))


def test_a_row_without_an_answer_is_no_clean_upgrade() -> None:
    broken = replace(samples.tree("default"), status=Status.BUILD_FAILED, outputs=(), error="no")
    found = of((samples.tree("cuda12"), broken))
    assert found.exit_code == 4
    assert "gives no answer for sum_squares_tree" in found.headline


def test_two_runs_meet_under_the_profiles_they_share() -> None:
    old, new = Side(samples.run(1), samples.night()), Side(samples.run(2), (samples.tree(),))
    assert common_profiles(old, new) == (("default", "default"),)
    found = dossier(old, new, (("default", "default"),), samples.nowhere, Policy(), now=samples.START)
    assert [leg.moved for leg in found.legs] == [False]
    assert found.headline.startswith("default moves the bits of sum_squares_atomic and sum_squares_kahan")


def test_the_page_has_every_kernel_under_every_pair() -> None:
    page = html.dossier(samples.dossier(), samples.SOURCES)
    assert page == html.dossier(samples.dossier(), samples.SOURCES)
    assert page.count('<tr role="row" class="group">') == 3
    for words in ("The upgrade", "Every kernel", "Nothing stands against the upgrade", "not_guaranteed"):
        assert words in page


def test_the_terminal_has_a_row_a_kernel_and_pair() -> None:
    out = io.StringIO()
    terminal.dossier(terminal.console(out), samples.dossier())
    rows = [line for line in out.getvalue().splitlines() if line.startswith(" sum_squares")]
    assert len(rows) == 6
    assert "cuda12-no-fmad → no-fmad: nvrtc 12.6.85 → 13.5.37" in out.getvalue()


def test_the_document_keeps_its_schema() -> None:
    read = valid(json.loads(render.dumps(render.dossier(samples.dossier()))), "dossier")
    assert read["upgrades"] == ["nvrtc 12.6.85 → 13.5.37"]


# --- The command -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("db") / "reprodb.db"
    with open_store(str(path), write=True) as store:
        for number in (1, 2):
            run = replace(samples.run(number), id=None, finished_at=None, exit_code=None)
            run_id = store.begin(run)
            store.record_many(run_id, [(result, None) for result in samples.night()])
            store.finish(run_id, 0, run.started_at + timedelta(seconds=41))
    return str(path)


def reprodb(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def test_one_run_is_paired_with_itself(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "new" / "dossier.html"
    code, out, err = reprodb(capsys, "dossier", "--db", database, "--html", str(page))
    assert code == 0
    assert "Upgrading nvrtc 12.6.85 → 13.5.37 keeps every fixed-order bit" in out
    assert f"report: {page}" in err
    assert "Every kernel" in page.read_text()


@pytest.mark.parametrize(
    ("args", "pairs"),
    [
        (("1", "2"), 5),
        (("1:cuda12", "2:default"), 1),
        (("2:cuda12",), 1),
        (("1:default", "2"), 1),
        (("2",), 2),
    ],
)
def test_which_pairs_a_command_looks_at(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], pairs: int
) -> None:
    page = str(tmp_path / "d.html")
    code, out, _ = reprodb(capsys, "dossier", *args, "--db", database, "--html", page, "--json")
    assert code == 0
    assert len(json.loads(out)["pairs"]) == pairs


def test_refusals(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = reprodb(capsys, "dossier", "2:fast-math", "--db", database)
    assert (code, out) == (2, "")
    assert "belong together" in err
    code, _, err = reprodb(capsys, "dossier", "baseline", "2", "--db", database)
    assert (code, "own reference" in err) == (2, True)
