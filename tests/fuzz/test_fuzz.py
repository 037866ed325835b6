"""Readers of foreign text under spoilt input: each takes or refuses it in its own words, soon."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.loop import Tally, attempt, fuzz, limited
from tests.fuzz.mutation import mutated
from tests.fuzz.targets import ROOT, Target, targets

TARGETS = {target.name: target for target in targets()}
# Cases of each target in the everyday tests: those that take milliseconds each get few.
QUICK = {
    "cuda source": 100,
    "sass normalised": 10,
    "ptx lowered": 20,
    "ptx normalised": 30,
    "ptx": 60,
    "bundle members": 60,
}


def report(tally: Tally) -> str:
    return "\n".join(f"{key}: {finding}\n{data[:400]!r}" for key, (finding, data) in tally.findings.items())


@pytest.mark.parametrize("name", TARGETS)
def test_the_valid_texts_are_taken(name: str) -> None:
    """Else fuzzing them would try nothing behind the first check."""
    target = TARGETS[name]
    taken = [attempt(target, text)[0] for text in target.seeds()]
    assert sum(taken) >= len(taken) * 0.6, f"{sum(taken)} of {len(taken)}"


@pytest.mark.parametrize("name", TARGETS)
def test_spoilt_texts_are_taken_or_refused(name: str) -> None:
    target, tally = TARGETS[name], Tally()
    fuzz([target], 7, cases=QUICK.get(name, 200), tally=tally)
    assert not tally.findings, report(tally)
    assert tally.total >= QUICK.get(name, 200)


@pytest.mark.parametrize("name", ["manifest", "policy", "ptx", "bundle members", "database url"])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_any_chain_of_mutations(name: str, seed: int) -> None:
    target = TARGETS[name]
    with limited():
        _, finding = attempt(target, mutated(random.Random(seed), target.seeds()))
    assert finding is None


@pytest.mark.soak
def test_fuzzing_for_ten_minutes() -> None:
    tally = Tally()
    fuzz(targets(), random.SystemRandom().randrange(2**32), seconds=600, tally=tally)
    assert not tally.findings, report(tally)
    assert tally.total > 20_000


# --- What fuzzing found ------------------------------------------------------------------------

ENTRY = ".version 8.0\n.target sm_90\n.address_size 64\n"
FOUND = {
    "a declaration of 2^31 registers": ("ptx", f"{ENTRY}.entry f() {{ .reg .f32 %f<2147483648>; ret; }}"),
    "a variable without a type": ("ptx", f"{ENTRY}.global .align 4 x[4];"),
    "an initialised variable of 2^63 bytes": ("ptx", f"{ENTRY}.global .b8 x[9223372036854775807] = {{1}};"),
    "a text that ends inside an operand": ("ptx", f"{ENTRY}.entry f() {{ add.f32 %f1, ["),
    "a number that no float holds": ("ptx", f"{ENTRY}.global .f32 x = 1e999999;"),
    "an octal number with a nine": ("ptx", f"{ENTRY}.entry f() {{ mov.u32 %r1, 09; ret; }}"),
    "nesting of ten thousand": ("ptx", f"{ENTRY}.entry f() {{ mov.u32 %r1, " + "{" * 10_000),
    "an include of a name that no file can have": ("source includes", '#include "' + "x" * 300 + '"\n'),
    "a ledger with a number of 6,000 digits": ("ledger", "[[blessing]]\nwhen = " + "9" * 6000),
    "a policy with a number of 6,000 digits": ("policy", "[gate]\nrel_tol = " + "9" * 6000),
    "a policy nested 10,000 deep": ("policy", "[gate]\nprofiles = " + "[" * 10_000),
    "profiles with a number of 6,000 digits": ("profiles", "[profile.a]\nfmad = " + "9" * 6000),
    "profiles nested 10,000 deep": ("profiles", "[profile.a]\nextra = " + "[" * 10_000),
    "a branch to nowhere": ("ptx lowered", f"{ENTRY}.visible .entry f() {{ bra; ret; }}"),
    "a branch to a label that is not there": (
        "ptx lowered",
        f"{ENTRY}.visible .entry f() {{ bra $L; ret; }}",
    ),
    "a register that is not declared": (
        "ptx lowered",
        f"{ENTRY}.visible .entry f() {{ mov.u32 %r1, %r2; ret; }}",
    ),
    "a source of a name that no file can have": (
        "manifest",
        (ROOT / "kernels/sum_squares_tree/kernel.toml").read_text().replace("sum_squares.cu", "x" * 300),
    ),
    "data of a terabyte of zeros": ("sass normalised", ".section\t.nv.constant3\n.zero 1099511627776\n"),
    "data that is no number": ("sass normalised", ".section\t.nv.constant3\n.zero 1e999\n.word 09\n"),
    "data that its type cannot hold": ("sass normalised", ".section\t.nv.constant3\n.byte 256, 0xfff\n"),
}


@pytest.mark.parametrize("case", FOUND)
def test_found_before(case: str) -> None:
    name, text = FOUND[case]
    target: Target = TARGETS[name]
    with limited():
        _, finding = attempt(target, text.encode())
    assert finding is None
