"""Reading `reprodb.toml`, its complaints, and its canonical text."""

from __future__ import annotations

import shutil
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprodb.errors import UsageError
from reprodb.findings import Moved, Verdict
from reprodb.policy import (
    DEFAULT_VERDICTS,
    GATEABLE,
    Expectation,
    Override,
    Policy,
    Project,
    RequireEqual,
    load_policy,
    parse_policy,
)
from reprodb.profiles import load_profiles
from reprodb.suite import bundled_suite
from tests.command import reprodb

WHOLE = """
[gate]
verdicts = ["latent", "changed"]
accuracy = false
require_baseline = true
profiles = ["default"]
rel_tol = 1e-5

[[kernel]]
name = "sin_*"
verdicts = ["determinism_lost"]
rel_tol = 1e-3

[[expect]]
kernel = "sin"
profile = "cuda12"
verdict = "latent"
moved = "build"
reason = "12.9 \\"moves\\" sin"
until = 2026-12-31

[[require_equal]]
profiles = ["default", "cuda12"]
kernels = ["sum_*"]
"""


def test_defaults() -> None:
    policy = parse_policy("")
    assert policy == Policy() == load_policy(None)
    assert policy.verdicts == DEFAULT_VERDICTS
    assert Verdict.LATENT not in policy.verdicts
    assert not policy.require_baseline


def test_a_whole_file() -> None:
    assert parse_policy(WHOLE) == Policy(
        verdicts=(Verdict.CHANGED, Verdict.LATENT),
        accuracy=False,
        require_baseline=True,
        profiles=("default",),
        rel_tol=1e-5,
        overrides=(Override("sin_*", (Verdict.DETERMINISM_LOST,), 1e-3),),
        expect=(
            Expectation(
                "sin", '12.9 "moves" sin', "cuda12", "*", Verdict.LATENT, Moved.BUILD, date(2026, 12, 31)
            ),
        ),
        require_equal=(RequireEqual(("default", "cuda12"), ("sum_*",)),),
    )


def test_the_last_override_that_says_something_wins() -> None:
    policy = Policy(
        overrides=(Override("*", (Verdict.CHANGED,), 0.1), Override("sin*", None, 0.2), Override("x", ()))
    )
    assert policy.verdicts_of("sinf") == (Verdict.CHANGED,)
    assert policy.rel_tol_of("sinf") == 0.2
    assert policy.verdicts_of("x") == ()


@pytest.mark.parametrize(
    ("text", "problem", "allowed"),
    [
        ("[gates]", "unknown key 'gates'", "gate"),
        ('[gate]\nverdict = ["changed"]', "unknown key 'verdict'", "verdicts"),
        ('[gate]\nverdicts = ["chnaged"]', "'chnaged'", "changed"),
        ('[gate]\nverdicts = ["churn"]', "'churn' never gates", "determinism_lost"),
        ('[gate]\nverdicts = "changed"', "verdicts = 'changed'", "a list of strings"),
        ("[gate]\naccuracy = 1", "accuracy = 1", "true or false"),
        ("[gate]\nrel_tol = -1", "rel_tol = -1", "a number from 0"),
        ("[gate]\nrel_tol = nan", "rel_tol = nan", "a number from 0"),
        ("[gate]\nrel_tol = true", "rel_tol = True", "a number from 0"),
        ('[[expect]]\nkernel = "sin"', "reason is missing", "a string"),
        ('[[expect]]\nkernel = "sin"\nreason = " "', "reason = ' '", "not empty"),
        ('[[expect]]\nkernel = "s"\nreason = "r"\nuntil = "soon"', "until = 'soon'", "a day"),
        ('[[expect]]\nkernel = "s"\nreason = "r"\nuntil = 2026-01-01T00:00:00Z', "until", "a day"),
        ('[[expect]]\nkernel = "s"\nreason = "r"\nmoved = "flag"', "moved = 'flag'", "build"),
        ('[[require_equal]]\nprofiles = ["default"]', "profiles = ['default']", "at least 2"),
        ('[[require_equal]]\nprofiles = ["a", "a"]', "profiles", "different"),
        ('[kernel]\nname = "x"', "kernel is not a list of tables", "[[kernel]]"),
        ("gate = 3", "[gate] is 3", "a table"),
        ("[gate", "not TOML", ""),
    ],
)
def test_complaints_name_the_value_and_what_is_allowed(text: str, problem: str, allowed: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_policy(text)
    assert problem in caught.value.problem
    assert "reprodb.toml" in caught.value.problem
    assert allowed in caught.value.allowed


def test_a_typo_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError) as caught:
        parse_policy('[gate]\nverdicts = ["chnaged"]')
    assert caught.value.remedy == "did you mean 'changed'?"


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "reprodb.toml"
    with pytest.raises(UsageError, match=r"reprodb\.toml cannot be read: No such file or directory\n"):
        load_policy(path)
    path.write_bytes(b"\xff")
    with pytest.raises(UsageError):
        load_policy(path)
    path.write_text(WHOLE, "utf-8")
    assert load_policy(path) == parse_policy(WHOLE)


names = st.text(min_size=1, max_size=12).filter(lambda s: s.strip() != "")
verdict_sets = st.sets(st.sampled_from(GATEABLE)).map(lambda s: tuple(v for v in GATEABLE if v in s))
tolerances = st.none() | st.floats(0, 0.999)
policies = st.builds(
    Policy,
    verdicts=verdict_sets,
    accuracy=st.booleans(),
    require_baseline=st.booleans(),
    profiles=st.lists(names, unique=True, max_size=3).map(tuple),
    rel_tol=tolerances,
    overrides=st.lists(st.builds(Override, names, st.none() | verdict_sets, tolerances), max_size=2).map(
        tuple
    ),
    expect=st.lists(
        st.builds(
            Expectation,
            names,
            names,
            names,
            names,
            st.sampled_from(GATEABLE),
            st.none() | st.sampled_from(list(Moved)),
            st.none() | st.dates(),
        ),
        max_size=2,
    ).map(tuple),
    require_equal=st.lists(
        st.builds(
            RequireEqual,
            st.lists(names, unique=True, min_size=2, max_size=3).map(tuple),
            st.lists(names, unique=True, min_size=1, max_size=2).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
)


@given(policies)
def test_the_canonical_text_reads_back_as_the_same_policy(policy: Policy) -> None:
    text = policy.text()
    assert parse_policy(text) == policy
    assert parse_policy(text).text() == text


# --- The repository ----------------------------------------------------------------------------


def test_how_often_nights_come_and_where_things_are() -> None:
    policy = parse_policy(
        '[nightly]\nevery = "2d"\n[project]\nsuite = "gpu/kernels"\nprofiles = "builds/profiles.toml"\n'
    )
    assert policy.every == timedelta(days=2)
    assert policy.project == Project("gpu/kernels", "builds/profiles.toml")
    assert parse_policy(policy.text()) == policy
    assert "[nightly]" not in Policy().text()


@pytest.mark.parametrize("every", ['"0h"', '"24"', '"-1d"', "24", '"99999h"', '"1 day"', '"٣h"'])
def test_a_cadence_that_is_none(every: str) -> None:
    with pytest.raises(UsageError, match=r"\[nightly\]: every"):
        parse_policy(f"[nightly]\nevery = {every}\n")


@pytest.mark.parametrize(
    "place", ["/srv/kernels", "../kernels", "a/../../b", "", ".", "a//b", ".git", "a\\\\b"]
)
def test_a_place_outside_the_repository_is_refused(place: str) -> None:
    with pytest.raises(UsageError, match=r"\[project\]: suite"):
        parse_policy(f'[project]\nsuite = "{place}"\n')


def test_commands_take_the_repositorys_own_suite_and_profiles(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parent / "suites" / "cases", tmp_path / "gpu" / "own")
    toml = '[project]\nsuite = "gpu/own"\nprofiles = "gpu/own/profiles.toml"\n'
    (tmp_path / "reprodb.toml").write_text(toml)
    assert reprodb("kernels", "--json", folder=tmp_path).json["root"] == "gpu/own"
    named = reprodb("kernels", "--json", "--suite", bundled_suite(), folder=tmp_path).json
    assert named["suite"] == "reprodb"
    own = {row["profile"] for row in reprodb("profiles", "--json", folder=tmp_path).json["profiles"]}
    assert own == set(load_profiles(tmp_path / "gpu/own/profiles.toml"))
    (tmp_path / "reprodb.toml").write_text("[project]\nsuit = 1\n")
    said = reprodb("kernels", folder=tmp_path)
    assert (said.code, "did you mean 'suite'?" in said.err) == (2, True)
