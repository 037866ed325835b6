"""Blessings: what is refused, what is in force, and a file that reads back and merges."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprodb.compare import compare_results
from reprodb.domain import Accuracy, Determinism, Lane, Result, Role, Run, Status, scope_of
from reprodb.errors import UsageError
from reprodb.findings import Verdict
from reprodb.ledger import Ledger, load_ledger, parse_expiry, parse_ledger
from tests.builders import (
    ATOMIC_TOTAL,
    H200,
    TREE_TOTAL,
    floats,
    make_output,
    make_result,
    make_run,
    store_of,
)
from tests.command import reprodb

NOW = datetime(2026, 3, 2, 6, 0, 0, 123456, tzinfo=UTC)
RUN = make_run(41)


def tree(total: str = TREE_TOTAL, kernel: str = "sum_squares_tree") -> Result:
    """A total and its partials, as the tree kernel records them."""
    return make_result(
        outputs=(
            make_output([total] * 100),
            make_output([floats(1.0, 2.0)] * 100, name="partials", role=Role.WITNESS),
        ),
        kernel=kernel,
    )


def bless(
    ledger: Ledger,
    result: Result,
    *,
    run: Run = RUN,
    why: str = "toolkit 13.5",
    now: datetime = NOW,
    expires: timedelta | None = None,
) -> Ledger:
    return ledger.bless(
        run, result, who="Ada", why=why, now=now, changed="73 of 1,024 partials", expires=expires
    )


def test_a_blessing_records_who_why_when_and_the_bits() -> None:
    ledger = bless(Ledger(), tree())
    (blessing,) = ledger.blessings
    assert blessing.scope == scope_of(RUN, tree())
    assert (blessing.who, blessing.why, blessing.toolchain) == ("Ada", "toolkit 13.5", "nvrtc 13.5.37")
    assert blessing.bits == (("total", TREE_TOTAL),)
    assert [name for name, _ in blessing.sha256] == ["partials", "total"]
    assert blessing.when == NOW.replace(microsecond=123000)
    assert blessing.holds(tree())
    assert not blessing.holds(tree(ATOMIC_TOTAL))


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (make_result([TREE_TOTAL, ATOMIC_TOTAL]), "determinism is lost: total has 2 patterns"),
        (
            make_result(accuracy=Accuracy.OUTSIDE, max_rel_err=0.25),
            "outside the tolerance (relative error 0.25)",
        ),
        (make_result(status=Status.LAUNCH_FAILED), "it has no result (launch_failed)"),
        (make_result(determinism=Determinism.NOT_GUARANTEED), "never gate"),
    ],
)
def test_refused(result: Result, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        bless(Ledger(), result)
    assert problem in caught.value.problem
    assert caught.value.remedy


def test_a_reason_is_needed() -> None:
    with pytest.raises(UsageError, match="reason"):
        bless(Ledger(), tree(), why="  ")


def test_blessing_touches_the_named_row_only() -> None:
    one = bless(Ledger(), tree())
    two = bless(one, tree(kernel="other"))
    assert one.blessings[0] in two.blessings
    assert {s.kernel for s in two.active(NOW)} == {"sum_squares_tree", "other"}


def test_the_newest_in_force_counts() -> None:
    later = NOW + timedelta(days=1)
    ledger = bless(bless(Ledger(), tree()), tree(ATOMIC_TOTAL), now=later)
    (blessing,) = ledger.active(later).values()
    assert blessing.holds(tree(ATOMIC_TOTAL))
    assert len(ledger.blessings) == 2


def test_blessing_the_same_bits_again_adds_nothing() -> None:
    ledger = bless(Ledger(), tree())
    assert bless(ledger, tree(), now=NOW + timedelta(days=1)) is ledger


def test_scopes_are_apart() -> None:
    measured = replace(tree(), lane=Lane.MEASURED)
    ledger = bless(bless(Ledger(), tree()), measured, run=make_run(42, device=H200))
    assert len(ledger.active(NOW)) == 2


def test_a_blessing_expires_and_the_one_before_counts_again() -> None:
    ledger = bless(Ledger(), tree())
    ledger = bless(ledger, tree(ATOMIC_TOTAL), now=NOW + timedelta(hours=1), expires=parse_expiry("90d"))
    (scope,) = ledger.active(NOW + timedelta(days=1))
    assert ledger.active(NOW + timedelta(days=90))[scope].holds(tree(ATOMIC_TOTAL))
    assert ledger.active(NOW + timedelta(days=91))[scope].holds(tree())


def test_a_withdrawal_is_a_record_of_its_own() -> None:
    ledger = bless(Ledger(), tree())
    ident = ledger.blessings[0].id
    after = ledger.withdraw(ident[:6], who="Ada", why="wrong card", now=NOW)
    assert after.active(NOW) == {}
    assert after.blessings == ledger.blessings
    with pytest.raises(UsageError, match="already withdrawn"):
        after.withdraw(ident, who="Ada", why="again", now=NOW)
    with pytest.raises(UsageError, match="no blessing has an id that starts with 'zz'") as caught:
        ledger.withdraw("zz", who="Ada", why="typo", now=NOW)
    assert ident in caught.value.allowed


@pytest.mark.parametrize("text", ["", "90", "d", "0d", "-3d", "3 years"])
def test_expiry_is_days_or_weeks(text: str) -> None:
    with pytest.raises(UsageError):
        parse_expiry(text)


def test_weeks() -> None:
    assert parse_expiry("2w") == timedelta(days=14)


# --- The file ------------------------------------------------------------------------------------


def test_the_file_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "reprodb.lock"
    assert load_ledger(path) == Ledger()
    ledger = bless(bless(Ledger(), tree()), tree(kernel="a"), expires=timedelta(days=9))
    ledger = ledger.withdraw(ledger.blessings[0].id, who="Ada", why="no", now=NOW)
    ledger.save(path)
    assert load_ledger(path).text() == ledger.text() == path.read_text("utf-8")
    assert [p.name for p in tmp_path.iterdir()] == ["reprodb.lock"]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        load_ledger(tmp_path)


def test_blocks_are_sorted_whatever_the_order_of_blessing() -> None:
    one = bless(bless(Ledger(), tree(kernel="a")), tree(kernel="b"))
    two = bless(bless(Ledger(), tree(kernel="b")), tree(kernel="a"))
    assert one.text() == two.text()
    assert one.text().index('kernel = "a"') < one.text().index('kernel = "b"')


def test_two_branches_merge_by_keeping_both_blocks() -> None:
    base = bless(Ledger(), tree(kernel="m"))
    left, right = bless(base, tree(kernel="a")), bless(base, tree(kernel="z"))
    added = [set(side.text().split("\n\n")) - set(base.text().split("\n\n")) for side in (left, right)]
    both = "\n\n".join([base.text().rstrip("\n"), *(b.rstrip("\n") for side in added for b in side)])
    assert {s.kernel for s in parse_ledger(both).active(NOW)} == {"a", "m", "z"}


def test_a_block_that_a_merge_kept_twice_is_one_decision() -> None:
    ledger = bless(bless(Ledger(), tree(kernel="a")), tree(kernel="b"))
    ledger = ledger.withdraw(ledger.blessings[0].id, who="Ada", why="no", now=NOW)
    head, *blocks = ledger.text().split("\n\n")
    twice = "\n\n".join([head, *(block.rstrip("\n") for block in [*blocks, *blocks])]) + "\n"
    assert parse_ledger(twice) == ledger
    other = ledger.blessings[1].id
    assert parse_ledger(twice).withdraw(other, who="Ada", why="no", now=NOW).withdrawals[-1].blessing == other


@pytest.mark.parametrize("mark", ["<<<<<<< HEAD", "||||||| 1a2b3c4", "=======", ">>>>>>> other"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_merge_conflict_is_called_one(mark: str, end: str) -> None:
    text = bless(Ledger(), tree()).text().replace("\n[[blessing]]\n", f"\n{mark}{end}[[blessing]]\n")
    line = text.split("\n").index(mark + end.strip("\n")) + 1
    with pytest.raises(UsageError, match=f"conflict is not resolved: '.*' in line {line}\n") as error:
        parse_ledger(text)
    assert "reprodb baselines merge" in error.value.remedy


@pytest.mark.parametrize("style", ["merge", "diff3"])
def test_what_git_cannot_merge_is_resolved_with_nothing_lost(tmp_path: Path, style: str) -> None:
    """Neighbouring blocks: git finds equal lines in them and leaves pieces of both, one inside the other."""

    def git(*arguments: str) -> int:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", f"merge.conflictStyle={style}")
        return subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, check=False, capture_output=True
        ).returncode

    path = tmp_path / "reprodb.lock"
    base = bless(Ledger(), tree(kernel="m"))
    left = bless(base, tree(kernel="a"))
    left = left.withdraw(left.blessings[-1].id, who="Ada", why="no", now=NOW)
    right = bless(base, tree(kernel="b"))
    assert git("init", "-q") == 0
    for branch, side in (("base", base), ("left", left), ("right", right)):
        git("checkout", "-q", *(("-b", branch) if branch == "base" else ("-b", branch, "base")))
        side.save(path)
        git("add", ".")
        assert git("commit", "-q", "-m", branch) == 0
    assert git("merge", "left") == 1
    with pytest.raises(UsageError, match="conflict is not resolved"):
        load_ledger(path)
    said = reprodb("baselines", "merge", folder=tmp_path)
    assert (said.code, said.out) == (
        0,
        "reprodb.lock: 3 blessings, of both sides; now git add reprodb.lock\n",
    )
    merged = load_ledger(path)
    assert set(merged.blessings) == {*left.blessings, *right.blessings}
    assert merged.withdrawals == left.withdrawals
    assert reprodb("baselines", "merge", folder=tmp_path).code == 0  # again is no change
    assert load_ledger(path) == merged


def test_a_file_that_was_cut_off_is_no_merge_conflict() -> None:
    text = bless(Ledger(), tree()).text()
    with pytest.raises(UsageError, match="not TOML") as error:
        parse_ledger(text[: text.index("sha256 =") + 5])
    assert "conflict" not in error.value.remedy


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    link, real = tmp_path / "reprodb.lock", tmp_path / "shared" / "reprodb.lock"
    link.symlink_to(real)
    bless(Ledger(), tree()).save(link)
    assert link.is_symlink()
    assert load_ledger(real) == load_ledger(link) != Ledger()


def test_an_edited_block_is_found() -> None:
    text = bless(Ledger(), tree()).text()
    with pytest.raises(UsageError, match="does not belong to this block"):
        parse_ledger(text.replace(TREE_TOTAL, ATOMIC_TOTAL))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[[blessing]]", "<<<<<<< HEAD"),
        ("[[blessing]]", "[[blessings]]"),
        ('lane = "modelled"', 'lane = "guessed"'),
        ("when = 2026", "when = 20x6"),
        ('who = "Ada"', "who = 3"),
        ('who = "Ada"', 'who = "Ada"\nwhom = "Bob"'),
        ('{ "total" = "0x4b25426d" }', '{ "total" = "4b25426d" }'),
        ("Z\n", "\n"),
    ],
)
def test_malformed_files_are_refused(old: str, new: str) -> None:
    text = bless(Ledger(), tree()).text()
    assert old in text
    with pytest.raises(UsageError, match=r"reprodb\.lock"):
        parse_ledger(text.replace(old, new, 1))


def test_a_withdrawal_must_name_a_blessing() -> None:
    with pytest.raises(UsageError, match="there is no blessing"):
        parse_ledger('[[withdrawal]]\nblessing = "x"\nwho = "a"\nwhy = "b"\nwhen = 2026-01-01T00:00:00Z\n')


@given(st.text(min_size=1).filter(str.strip), st.text(min_size=1).filter(str.strip))
def test_any_text_survives(who: str, why: str) -> None:
    ledger = Ledger().bless(RUN, tree(), who=who, why=why, now=NOW, changed=why)
    read = parse_ledger(ledger.text())
    assert read == ledger
    assert read.text() == ledger.text()


# --- As a reference -----------------------------------------------------------------------------


def test_a_blessing_alone_is_a_reference_where_no_database_knows_the_run() -> None:
    (blessing,) = bless(Ledger(), tree()).blessings
    kept, moved = tree(), tree(ATOMIC_TOTAL)
    same = compare_results(blessing.reference(kept), kept, None, make_run(2), store_of(kept).__getitem__)
    assert same.verdict is Verdict.SAME
    row = compare_results(blessing.reference(moved), moved, None, make_run(2), store_of(moved).__getitem__)
    assert row.verdict is Verdict.CHANGED
    assert row.outputs[0].elements[0].before == TREE_TOTAL


def test_another_source_starts_a_new_history() -> None:
    (blessing,) = bless(Ledger(), tree()).blessings
    assert blessing.same_history(tree())
    assert not blessing.same_history(replace(tree(), input_digest="22" * 32))
