"""Readers of foreign text under spoilt input: each takes or refuses it in its own words, soon."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reprodb.errors import StoreError
from tests.fuzz import counts, seeds
from tests.fuzz.loop import Tally, attempt, fuzz, limited
from tests.fuzz.seeds import ROOT
from tests.fuzz.structure import values_exchanged
from tests.fuzz.targets import Target, targets, unusable

TARGETS = {target.name: target for target in targets()}
# Cases of each target in the everyday tests: those that take milliseconds each get few.
QUICK = {
    "cuda source": 100,
    "sass": 10,
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
    assert unusable(TARGETS[name]) is None


def test_a_reader_that_cannot_run_here_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not installed, and a reader that refuses what is valid: neither is left out in silence."""
    monkeypatch.setitem(sys.modules, "reprodb.store.refs", None)
    assert "reprodb.store.refs" in str(unusable(TARGETS["run reference"]))
    picky = replace(TARGETS["size"], seeds=lambda: (b"1", b"1 +", b"x"))
    assert str(unusable(picky)).startswith("it takes 1 of 3 valid texts")


def test_stretches_hold_every_instruction() -> None:
    """The pieces of PTX and SASS are small, and between them lack no opcode of the whole texts."""
    ptx, sass = seeds.ptx_texts(), seeds.sass_texts()
    assert max(map(len, (*ptx, *sass))) < 4096
    opcodes = set(re.findall(rb"^\t(?:@!?%p\d+ )?([a-z][\w.:]*)", b"\n".join(ptx), re.MULTILINE))
    assert {b"fma.rn.f32", b"bar.sync", b"ld.param.u64", b"atom.global.add.f32"} <= opcodes
    assert all(
        mark in b"".join(sass) for mark in (b"FFMA", b"EIATTR_REGCOUNT", b".nv.constant0", b"BAR.SYNC")
    )


def test_spoilt_values_keep_a_bundle_whole() -> None:
    """Its checksums, names and form agree, so that what is refused is refused for what it says."""
    rng, target = random.Random(3), TARGETS["bundle values"]
    said = []
    for _ in range(60):
        try:
            target.read(values_exchanged(rng, target.seeds()))
        except StoreError as error:
            said.append(error.problem)
    assert not [problem for problem in said if "SHA-256" in problem or "under the name" in problem]
    assert len({problem[-40:] for problem in said}) > 10


# --- Counts ------------------------------------------------------------------------------------


def test_counts_of_several_processes_add_up(tmp_path: Path) -> None:
    tally = Tally({"a": 3, "b": 1}, {"a": 2, "b": 0}, {"a": {"x:1"}}, {"a: Oops at x:2": ("Oops", b"")})
    one = counts.document(tally, counts.Process(1, {"c": "no c"}, 2.0, 1.0))
    two = counts.document(Tally({"a": 5}, {"a": 5}, {"a": {"x:3"}}), counts.Process(2, {}, 3.0, 1.5))
    for seed, document in ((1, one), (2, two)):
        counts.write(document, tmp_path / f"counts-{seed}.json")
    whole = counts.merge_folder(tmp_path)
    assert (whole["seeds"], whole["total"], whole["cases"]) == ([1, 2], 9, {"a": 8, "b": 1})
    assert (whole["seconds"], whole["cpu_seconds"], whole["taken"]) == (3.0, 2.5, {"a": 7, "b": 0})
    assert whole["refused_at"] == {"a": ["x:1", "x:3"]}
    assert (whole["absent"], whole["findings"]) == ({"c": "no c"}, ["a: Oops at x:2"])
    assert json.loads((tmp_path / "counts.json").read_text()) == whole
    assert "not run here: c: no c" in counts.table(whole)


def test_the_program_counts_in_several_processes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--seconds", "1", "--seed", "5", "--processes", "2",
               "--out", str(tmp_path), "reference", "size"]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    whole = json.loads((tmp_path / "counts.json").read_text())
    assert whole["seeds"] == [5, 6]
    assert set(whole["cases"]) == {"size", "run reference"}
    assert f"{whole['total']:,} cases" in done.stdout
    assert whole["total"] == sum(whole["cases"].values()) >= 128


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
        outcome = attempt(target, target.spoilt(random.Random(seed), target.seeds()))
    assert outcome.finding is None


@pytest.mark.soak
def test_fuzzing_for_ten_minutes() -> None:
    tally = Tally()
    fuzz(targets(), random.SystemRandom().randrange(2**32), seconds=600, tally=tally)
    assert not tally.findings, report(tally)
    assert tally.total > 20_000


# --- What fuzzing found ------------------------------------------------------------------------

ENTRY = ".version 8.0\n.target sm_90\n.address_size 64\n"


def lowered(instruction: str) -> tuple[str, str]:
    return "ptx lowered", (
        f"{ENTRY}.visible .entry f() {{ .reg .b32 %r<4>; .reg .pred %p<2>; {instruction} ret; }}"
    )


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
    "data of a terabyte of zeros": ("sass", ".section\t.nv.constant3\n.zero 1099511627776\n"),
    "data that is no number": ("sass", ".section\t.nv.constant3\n.zero 1e999\n.word 09\n"),
    "a line of data with a thousand blanks many times over": (
        "sass",
        "\t.section\t.nv.constant3\n" + (".word 1" + " " * 8000 + "x\n") * 200,
    ),
    "data that its type cannot hold": ("sass", ".section\t.nv.constant3\n.byte 256, 0xfff\n"),
    "an instruction of blanks that never ends": (
        "sass",
        '\t.section\t.text.k,"ax",@progbits\n        /*0000*/' + " " * 10_000 + "\n",
    ),
    "an instruction with ten thousand remarks": (
        "sass",
        '\t.section\t.text.k,"ax",@progbits\n        /*0000*/ ' + "(* " * 10_000 + ";\n",
    ),
    "a name of 30,000 letters": ("ptx normalised", f"{ENTRY}.entry f() {{ bra {'L' * 30_000}; ret; }}"),
    "blank lines without end": ("ptx normalised", f"{ENTRY}{chr(10) * 30_000}.entry f() {{ ret; }}"),
    "a mask of lanes that there is not": lowered("mov.u32 %r1, %lanemask_ld;"),
    "a reduction at a barrier of no kind": lowered("bar.red.pred %p1, 0, %p1;"),
    "a shuffle of two operands": lowered("shfl.sync.up.b32 %r1, %r2;"),
    "a move of nothing": lowered("mov.b32 %r1, {};"),
    "a move in three parts": lowered("mov.b32 %r1, {%r1, %r2, %r1};"),
    "kernels whose names fill no line": (
        "cuda source",
        "\n".join(f"__global__ void kernelOfALongName{k}(float *x) {{}}" for k in range(40)),
    ),
}


@pytest.mark.parametrize("case", FOUND)
def test_found_before(case: str) -> None:
    name, text = FOUND[case]
    target: Target = TARGETS[name]
    with limited():
        outcome = attempt(target, text.encode())
    assert outcome.finding is None
