"""Blessing, withdrawing and retiring: what is written where, what is refused, what the next night meets."""

from __future__ import annotations

import html
import os
import signal
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reprodb.cli.sealing import decider, sealed
from reprodb.domain import (
    Accuracy,
    CanaryOutcome,
    Determinism,
    Result,
    Role,
    Run,
    Scope,
    Status,
    scope_of,
)
from reprodb.errors import StoreError, UsageError
from reprodb.findings import Verdict
from reprodb.ledger import Ledger, load_ledger
from reprodb.review import located
from reprodb.store import open_store
from tests.builders import (
    ATOMIC_TOTAL,
    STARTED,
    TREE_TOTAL,
    floats,
    make_build,
    make_environment,
    make_output,
    make_result,
    make_run,
)
from tests.command import Said, reprodb, valid
from tests.nights import Nights, row, verdicts
from tests.test_bad_input import write_kernel

LOST = [TREE_TOTAL, ATOMIC_TOTAL]
EDITED = (("_lib/sum_squares.cu", "bb" * 32),)


class Lab(Nights):
    """Nights in which somebody blesses."""

    def bless(self, *args: object) -> Said:
        said = self.call("bless", *args, "--reason", "toolkit 13.5", "--who", "Ada")
        assert said.code == 0, said.err
        return said

    def refused(self, *args: object) -> str:
        said = self.call("bless", *args, "--reason", "toolkit 13.5", "--who", "Ada")
        assert said.code == 2
        assert not self.path.exists()
        with open_store(str(self.database)) as store:
            assert store.blessings() == ()
        return said.err


@pytest.fixture(name="lab")
def a_lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def moved(kernel: str = "sum_squares_tree") -> Result:
    return make_result([ATOMIC_TOTAL] * 100, kernel=kernel)


# --- What a blessing does ----------------------------------------------------------------------


def test_blessing_y_touches_y_alone_and_the_next_night_is_quiet(lab: Lab) -> None:
    """X has no baseline while Y moved: the real change wins, and blessing Y leaves X and Z as they are."""
    lab.night(make_result(kernel="y"), make_result(kernel="z"))
    diff = lab.night(make_result(kernel="x"), moved("y"), moved("z"))
    assert verdicts(diff) == {"x": Verdict.NO_BASELINE, "y": Verdict.CHANGED, "z": Verdict.CHANGED}
    assert diff.exit_code == 1
    lab.bless("latest", "y")
    assert [b.scope.kernel for b in lab.ledger.blessings] == ["y"]
    (blessing,) = lab.ledger.blessings
    assert (blessing.who, blessing.why, blessing.bits) == ("Ada", "toolkit 13.5", (("total", ATOMIC_TOTAL),))
    assert "total (0x4b25426d → 0x4b25426e, 1 ULP) moved" in blessing.changed
    with open_store(str(lab.database)) as store:
        (told,) = store.blessings()
        assert (told.scope.kernel, told.changed, told.who) == ("y", blessing.changed, "Ada")
        assert store.check() == ()
    again = lab.night(make_result(kernel="x"), moved("y"), moved("z"))
    assert verdicts(again) == {"x": Verdict.SAME, "y": Verdict.SAME, "z": Verdict.CHANGED}
    assert row(again, "y").reference_kind == "blessed"
    assert row(again, "z").reference_run == 1


def test_it_prints_what_changed_against_the_reference_before(lab: Lab) -> None:
    def tree(total: str, partial: float) -> Result:
        partials = make_output([floats(1.0, partial, 3.0)] * 100, name="partials", role=Role.WITNESS)
        return make_result(outputs=(make_output([total] * 100), partials))

    lab.night(tree(TREE_TOTAL, 2.0))
    lab.night(tree(TREE_TOTAL, 2.0000002))
    lines = lab.bless("latest").out.splitlines()
    # Latent was accepted at once, so that the row is its own reference: told is what was there before it.
    assert lines[0] == "sum_squares_tree ramp1000-4194915 (default, sm_90): latent"
    assert "1 of 3 partials moved, the total did not" in lines[1]
    lab.night(tree(ATOMIC_TOTAL, 2.0000005))
    lines = lab.bless("latest").out.splitlines()
    assert lines[0] == "sum_squares_tree ramp1000-4194915 (default, sm_90): changed"
    assert "total (0x4b25426d → 0x4b25426e, 1 ULP) and 1 of 3 partials moved" in lines[1]
    assert lines[2] == "    total: 0x4b25426d → 0x4b25426e (1 ULP)"
    assert lines[3].endswith("(1 of 3 elements, the first at 1, 1 ULP)")
    assert lines[4].startswith("1 row of run 3 blessed by Ada in reprodb.lock: toolkit 13.5")


def test_bits_that_nothing_was_before_are_the_first(lab: Lab) -> None:
    lab.night(make_result())
    lines = lab.bless("latest").out.splitlines()
    assert lines[1:3] == ["    the first bits of this row", "    total: nothing → 0x4b25426d"]
    assert lab.ledger.blessings[0].changed == "the first bits of this row"


def test_json_says_the_same(lab: Lab) -> None:
    lab.night(make_result())
    lab.night(moved())
    document = valid(lab.bless("latest", "--json").json, "bless")
    assert (document["schema"], document["written"]) == ("reprodb.bless/1", True)
    (blessed,) = document["blessed"]
    assert (blessed["verdict"], blessed["id"]) == ("changed", lab.ledger.blessings[0].id)
    assert blessed["outputs"]["total"] == {
        "before": TREE_TOTAL,
        "after": ATOMIC_TOTAL,
        "changed": 1,
        "of": 1,
        "max_ulp": 1,
    }


def test_report_only_writes_nothing(lab: Lab) -> None:
    lab.night(make_result())
    lab.night(moved())
    before = lab.database.read_bytes()
    out = lab.bless("latest", "--report-only").out
    assert "0x4b25426d → 0x4b25426e" in out
    assert "would be written: 1 row of run 2 blessed by Ada" in out
    assert not lab.path.exists()
    assert lab.database.read_bytes() == before


def test_one_profile_or_one_kernel_of_it(lab: Lab) -> None:
    both = [make_result(kernel=k, profile=p) for k in ("a", "b") for p in ("default", "no-fmad")]
    lab.night(*both)
    lab.bless("latest:no-fmad", "a")
    lab.bless("latest:default:b")
    assert {(b.scope.kernel, b.scope.profile) for b in lab.ledger.blessings} == {
        ("a", "no-fmad"),
        ("b", "default"),
    }


def test_globs_pick_kernels(lab: Lab) -> None:
    lab.night(make_result(kernel="sin_a"), make_result(kernel="sin_b"), make_result(kernel="cos"))
    lab.bless("latest", "sin_*")
    assert {b.scope.kernel for b in lab.ledger.blessings} == {"sin_a", "sin_b"}


def test_rows_without_a_guarantee_are_skipped_unless_named(lab: Lab) -> None:
    churns = make_result(LOST * 50, kernel="atomic", determinism=Determinism.NOT_GUARANTEED)
    lab.night(make_result(), churns)
    assert "never gate" in lab.refused("latest", "atomic")
    assert "skipped, nobody guarantees their bits: 1 row of atomic" in lab.bless("latest").out
    assert [b.scope.kernel for b in lab.ledger.blessings] == ["sum_squares_tree"]


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (make_result(LOST, kernel="bad"), "determinism is lost: total has 2 patterns"),
        (make_result(kernel="bad", accuracy=Accuracy.OUTSIDE, max_rel_err=0.5), "accuracy is outside"),
        (make_result(kernel="bad", status=Status.TIMED_OUT), "it has no result (timed_out)"),
    ],
)
def test_one_bad_row_refuses_the_whole_run(lab: Lab, bad: Result, problem: str) -> None:
    lab.night(make_result(), bad)
    said = lab.refused("latest")
    assert problem in said
    assert "name the kernels to bless without it" in said
    lab.bless("latest", "sum_squares_tree")


def test_the_policy_judges_accuracy_here_too(lab: Lab) -> None:
    lab.night(make_result(max_rel_err=1e-3))
    (lab.folder / "reprodb.toml").write_text("[gate]\nrel_tol = 1e-5\n")
    assert "accuracy is outside the tolerance (relative error 0.001)" in lab.refused("latest")


def test_a_run_whose_canary_failed_or_that_did_not_finish_is_refused(lab: Lab) -> None:
    lab.night(make_result(), canaries=(CanaryOutcome("integer_sum", ok=False, sentence="6 is not 7"),))
    assert "canary integer_sum failed: 6 is not 7" in lab.refused("latest")
    lab.night(make_result(), finish=False)
    assert "not finished" in lab.refused("2")


def test_an_empty_reason_is_asked_for_once(lab: Lab) -> None:
    lab.night(make_result(kernel="a"), make_result(kernel="b"))
    said = lab.call("bless", "latest", "--reason", " ", "--who", "Ada")
    assert (said.code, said.err.count("needs a reason")) == (2, 1)


def test_pruning_keeps_what_the_ledger_alone_blesses(tmp_path: Path) -> None:
    """A keeper whose database has no blessing, since it was given elsewhere and came with a commit."""
    lab = Lab(tmp_path)
    for _ in range(4):
        lab.night(make_result(kernel="a"))
    lab.bless("2")
    with sqlite3.connect(lab.database) as connection:
        connection.execute("DELETE FROM blessings")
    planned = lab.call("db", "prune", "--keep-runs", "1", "--dry-run")
    assert planned.out.endswith("runs: 1, 3\nkept as blessed or as a reference: 2\n"), planned
    elsewhere = lab.call("db", "prune", "--keep-runs", "1", "--dry-run", "--ledger", "absent.lock")
    assert "runs: 1, 2, 3" in elsewhere.out
    (tmp_path / "damaged.lock").write_text("[[blessing]]\n")
    assert lab.call("db", "prune", "--keep-runs", "1", "--ledger", "damaged.lock").code == 2
    assert lab.call("db", "prune", "--keep-runs", "1").code == 0
    with open_store(str(lab.database)) as store:
        assert [run.id for run in store.runs()] == [4, 2]


def test_what_to_try_names_this_suite_and_these_profiles(tmp_path: Path) -> None:
    diff = replace(Lab(tmp_path).night(make_result(LOST)), baseline=None)
    (row_,) = diff.comparisons
    assert row_.loss is not None
    foreign = ("compute-sanitizer --tool racecheck reprodb run --suite SUITE_FOLDER --kernel k",)
    lost = replace(diff, comparisons=(replace(row_, loss=replace(row_.loss, advice=foreign)),))
    found = located(lost, Path("/a b/suite"), Path("p.toml")).comparisons[0].loss
    assert found is not None
    assert found.advice == (
        "compute-sanitizer --tool racecheck reprodb run --suite '/a b/suite' --kernel k"
        " --profiles-file p.toml",
    )


def test_what_to_try_names_the_suite_in_diffs_and_later_pages_too(tmp_path: Path) -> None:
    """In the folder whose suite is the run's; elsewhere the place is left to be filled in."""
    home, away = tmp_path / "home", tmp_path / "away"
    write_kernel(home / "gpu/kernels", "k")
    (home / "gpu/kernels" / "suite.toml").write_text('name = "mine"\n')
    (home / "reprodb.toml").write_text('[project]\nsuite = "gpu/kernels"\nprofiles = "p.toml"\n')
    away.mkdir()
    database = tmp_path / "n.db"
    with open_store(str(database), write=True) as store:
        for number, bits in ((1, [TREE_TOTAL] * 2), (2, LOST)):
            run = replace(
                make_run(None, suite="mine", kind="nightly"), uid=f"{number:032x}", finished_at=None
            )
            run_id = store.begin(run)
            store.record(run_id, make_result(bits), None)
            store.finish(run_id, 0, run.started_at)
    for folder, words in ((home, "--suite gpu/kernels"), (away, "--suite SUITE_FOLDER")):
        said = reprodb("diff", "1", "2", "--db", database, "--json", folder=folder)
        assert said.code == 3, said.err
        (compared,) = said.json["comparisons"]
        assert words in compared["loss"]["advice"][0]
        assert ("--profiles-file p.toml" in compared["loss"]["advice"][0]) is (folder is home)
        assert reprodb("report", "2", "--db", database, "--out", "r", folder=folder).code == 0
        page = html.unescape((folder / "r" / "run-2.html").read_text())
        assert words in page


def test_a_policy_that_names_no_kernel_here_is_told_at_night(tmp_path: Path) -> None:
    lab = Lab(tmp_path, '[[expect]]\nkernel = "sum_squares_tre"\nreason = "r"\n')
    told = "[[expect]] of the policy names no kernel of this suite: 'sum_squares_tre'"
    assert [n for n in lab.night(make_result()).notes if n.startswith(told)]


def test_wrong_names_get_the_nearest(lab: Lab) -> None:
    lab.night(make_result())
    assert "did you mean sum_squares_tree?" in lab.refused("latest", "sum_square_tree")
    assert "did you mean 'default'?" in lab.refused("latest:defalt")
    assert "blessed or accepted already" in lab.refused("baseline")


def test_blessing_again_changes_nothing_and_completes_a_history_that_was_cut_off(lab: Lab) -> None:
    lab.night(make_result())
    lab.night(moved())
    lab.bless("latest")
    text = lab.path.read_text()
    assert "nothing to write: reprodb.lock says so already" in lab.bless("latest").out
    assert lab.path.read_text() == text
    # The machine stopped between the ledger's file and the database's commit.
    lab.database.unlink()
    lab.count = 0
    lab.night(make_result())
    lab.night(moved())
    lab.bless("latest")
    assert lab.path.read_text() == text
    with open_store(str(lab.database)) as store:
        (told,) = store.blessings()
    assert (told.who, told.when) == ("Ada", lab.ledger.blessings[0].when)


# --- Both or neither ---------------------------------------------------------------------------


def test_a_ledger_that_cannot_be_written_leaves_the_database_alone(lab: Lab) -> None:
    lab.night(make_result())
    said = lab.call("bless", "latest", "--reason", "r", "--ledger", lab.folder / "gone" / "reprodb.lock")
    assert said.code == 4
    assert "cannot be written" in said.err
    with open_store(str(lab.database)) as store:
        assert store.blessings() == ()


def test_a_database_that_fails_after_the_ledger_puts_the_file_back(tmp_path: Path) -> None:
    path = tmp_path / "reprodb.lock"
    ledger = Ledger()
    after = ledger.retire(_scope(), who="Ada", why="gone", now=STARTED)
    for before in (None, "# by hand\n"):
        if before is not None:
            path.write_text(before)
        with pytest.raises(StoreError), sealed(path, ledger, after) as seal:
            seal()
            assert load_ledger(path) == after
            raise StoreError("the disk is full")
        assert (path.read_text() if path.exists() else None) == before
    assert [p.name for p in tmp_path.iterdir()] == ["reprodb.lock"]


def test_an_interruption_waits_until_both_are_done(tmp_path: Path) -> None:
    path = tmp_path / "reprodb.lock"
    after = Ledger().retire(_scope(), who="Ada", why="gone", now=STARTED)
    done = []
    with pytest.raises(KeyboardInterrupt), sealed(path, Ledger(), after) as seal:
        seal()
        os.kill(os.getpid(), signal.SIGINT)
        done.append("committed")
    assert done == ["committed"]
    assert load_ledger(path) == after


def test_a_ledger_that_somebody_else_wrote_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "reprodb.lock"
    mine = Ledger().retire(_scope(), who="Ada", why="gone", now=STARTED)
    theirs = Ledger().retire(_scope(), who="Bob", why="gone", now=STARTED)
    with pytest.raises(UsageError, match="changed meanwhile"), sealed(path, Ledger(), mine) as seal:
        theirs.save(path)
        seal()
    assert load_ledger(path) == theirs


def _scope() -> Scope:
    return scope_of(Run("u", "reprodb", make_result().lane, make_environment(), STARTED), make_result())


# --- Taking back, expiring, retiring -----------------------------------------------------------


def test_a_withdrawn_blessing_gives_the_reference_before_back(lab: Lab) -> None:
    lab.night(make_result())
    lab.night(moved())
    lab.bless("latest")
    assert verdicts(lab.night(moved())) == {"sum_squares_tree": Verdict.SAME}
    ident = lab.ledger.blessings[0].id
    said = lab.call("baselines", "withdraw", ident[:6], "--reason", "wrong card", "--who", "Bob")
    assert said.out.startswith(f"withdrawn: {ident}, sum_squares_tree")
    diff = lab.night(moved())
    assert verdicts(diff) == {"sum_squares_tree": Verdict.CHANGED}
    assert row(diff).reference_run == 1
    assert row(diff).note.startswith(f"blessing {ident} of these bits withdrawn 20")
    with open_store(str(lab.database)) as store:
        assert store.blessings()[0].withdrawn_why == "wrong card"
    again = lab.call("baselines", "withdraw", ident, "--reason", "again")
    assert (again.code, "already withdrawn" in again.err) == (2, True)


def test_an_expired_blessing_gives_the_reference_before_back(lab: Lab) -> None:
    lab.night(make_result())
    lab.night(moved())
    lab.bless("latest", "--expires", "90d")
    made = lab.ledger.blessings[0].when
    assert verdicts(lab.night(moved(), at=made + timedelta(days=89))) == {"sum_squares_tree": Verdict.SAME}
    late = lab.night(moved(), at=made + timedelta(days=91))
    assert verdicts(late) == {"sum_squares_tree": Verdict.CHANGED}
    assert late.exit_code == 1
    blessing = lab.ledger.blessings[0]
    day = f"{made + timedelta(days=90):%Y-%m-%d}"
    assert row(late).note == f"blessing {blessing.id} of these bits has expired {day}: toolkit 13.5"


def test_a_withdrawal_needs_no_database(lab: Lab) -> None:
    lab.night(make_result())
    lab.bless("latest")
    ident = lab.ledger.blessings[0].id
    said = reprodb(
        "baselines", "withdraw", ident, "--reason", "r", "--db", lab.folder / "no.db", folder=lab.folder
    )
    assert said.code == 0
    assert not (lab.folder / "no.db").exists()
    assert lab.ledger.active(datetime.now(UTC)) == {}


def test_a_kernel_that_was_taken_out_on_purpose_is_retired(lab: Lab) -> None:
    lab.night(make_result(kernel="kept"), make_result(kernel="gone"))
    diff = lab.night(make_result(kernel="kept"))
    assert verdicts(diff) == {"kept": Verdict.SAME, "gone": Verdict.MISSING}
    assert diff.exit_code == 1
    assert "no such row of kernel 'gone'" in lab.refused("latest", "gone")
    out = lab.bless("latest", "gone", "--missing").out
    assert "gone ramp1000-4194915 (default, sm_90): retired, it had 0x4b25426d" in out
    quiet = lab.night(make_result(kernel="kept"))
    assert verdicts(quiet) == {"kept": Verdict.SAME}
    assert quiet.exit_code == 0
    # A night after the decision: what comes back starts anew.
    back = lab.night(
        make_result(kernel="kept"), moved("gone"), at=lab.ledger.retirements[0].when + timedelta(days=1)
    )
    assert verdicts(back)["gone"] is Verdict.NO_BASELINE
    listed = valid(reprodb("baselines", "--all", "--json", folder=lab.folder).json, "baselines")
    (gone,) = listed["retired"]
    assert (gone["kernel"], gone["who"], gone["why"]) == ("gone", "Ada", "toolkit 13.5")


def test_a_blessed_row_that_a_new_machine_lacks_is_missing(lab: Lab) -> None:
    """The ledger alone knows that there was such a row."""
    lab.night(make_result(kernel="kept"), make_result(kernel="gone"))
    lab.bless("latest")
    lab.database.unlink()
    diff = lab.night(make_result(kernel="kept"))
    assert verdicts(diff) == {"kept": Verdict.SAME, "gone": Verdict.MISSING}


def test_a_new_machine_knows_the_blessed_bits_and_the_blessed_source(lab: Lab) -> None:
    lab.night(make_result())
    lab.bless("latest")
    lab.database.unlink()
    assert verdicts(lab.night(make_result())) == {"sum_squares_tree": Verdict.SAME}
    lab.database.unlink()
    diff = lab.night(replace(moved(), build=make_build(sources=EDITED)))
    found = row(diff)
    assert found.verdict is Verdict.CHANGED
    assert found.attribution is not None
    assert found.attribution.new_history == "new history: source changed (other text than was blessed)"


# --- Who, and the list -------------------------------------------------------------------------


def test_who_is_named_or_git_knows_or_the_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert decider(" Ada ") == "Ada"
    config = tmp_path / "config"
    config.write_text("[user]\nname = Grace\nemail = grace@example.org\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    monkeypatch.chdir(tmp_path)
    assert decider(None) == "Grace <grace@example.org>"
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("LOGNAME", "hopper")
    assert decider(None) == "hopper"


def test_baselines_lists_what_counts_and_with_all_what_did(lab: Lab) -> None:
    assert "nothing is blessed" in reprodb("baselines", folder=lab.folder).out
    lab.night(make_result())
    lab.bless("latest")
    lab.night(moved())
    lab.bless("latest", "--expires", "2w")
    listed = valid(reprodb("baselines", "--json", folder=lab.folder).json, "baselines")
    assert listed["schema"] == "reprodb.baselines/1"
    (one,) = listed["baselines"]
    assert (one["state"], one["bits"], one["who"]) == ("active", {"total": ATOMIC_TOTAL}, "Ada")
    everything = valid(reprodb("baselines", "--all", "--json", folder=lab.folder).json, "baselines")
    assert [b["state"] for b in everything["baselines"]] == ["replaced", "active"]
    lab.call("baselines", "withdraw", one["id"], "--reason", "no", "--who", "Bob")
    table = reprodb("baselines", "--all", folder=lab.folder).out
    assert "withdrawn" in table
    listed = valid(reprodb("baselines", "--all", "--json", folder=lab.folder).json, "baselines")
    states = {b["state"]: b for b in listed["baselines"]}
    assert states["withdrawn"]["withdrawn"]["who"] == "Bob"
    assert states["active"]["bits"] == {"total": TREE_TOTAL}
