"""Reports of people who do this job, as kernels of tests/suites/cases, through the whole pipeline.

Each test says what happened to somebody and what must be said of it. They run on the model, and with
`-m gpu` on a GPU, where the same verdicts are expected.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from reprodb.cli.flow import RunOptions, record_run
from reprodb.cli.progress import listener
from reprodb.store import open_store
from tests import shared
from tests.command import reprodb

SUITE = Path(__file__).parent / "suites" / "cases"
PROFILES = SUITE / "profiles.toml"
# What an H200 gave for every case under every profile (reports/evidence).
EVIDENCE = Path(__file__).parents[1] / "reports" / "evidence" / "cases-h200.json"
MATH = ("math_atan2f", "math_atan2", "math_cospif", "math_sin", "math_exp", "math_cbrtf", "math_powf")
PLAIN = ("append", "integer_sum", "barrier_*", "padded_*", "ring*", "row0*", "slot*", "threads_1025",
         "two_outputs*", "zeros*")  # fmt: skip


class Lab:
    """The runs of the cases on one device, each made when it is first asked for, in one database."""

    def __init__(self, device: str, folder: Path) -> None:
        self.device = device
        self.database = folder / "reprodb.db"

    @property
    def measured(self) -> bool:
        return self.device != "model"

    def run(self, kernels: tuple[str, ...], profiles: tuple[str, ...] = ("default",), **options: Any) -> int:
        chosen = RunOptions(
            suite=SUITE,
            profiles_file=options.pop("profiles_file", PROFILES),
            kernels=kernels,
            profiles=profiles,
            device=self.device,
            store=shared.store(),
            repetitions=options.pop("repetitions", 8),
            **options,
        )
        with open_store(str(self.database), write=True) as store:
            return record_run(chosen, store, listener(quiet=True)).run.id or 0

    @cached_property
    def plain(self) -> int:
        return self.run(PLAIN)

    @cached_property
    def again(self) -> int:
        return self.run(("append", "integer_sum"))

    @cached_property
    def flags(self) -> int:
        profiles = (
            "default",
            "no-fmad",
            "ptxas-O0",
            "debug",
            "no-fmad-ptxas-O0",
            "fast-math",
            "fast-math-no-ftz",
        )
        return self.run(("dot2", "subnormal_add", "scaled_sum"), profiles, repetitions=2)

    @cached_property
    def toolkits(self) -> int:
        return self.run(MATH, ("default", "cuda12"), cases=("random-*",), repetitions=2)

    def call(self, *args: object) -> Any:
        return reprodb(*args, "--db", self.database)

    def diff(self, before: str, after: str, *args: str) -> dict[str, Any]:
        said = self.call("diff", before, after, "--json", *args)
        assert said.out, said.err
        document: dict[str, Any] = said.json
        assert said.code == document["exit_code"]
        return document

    def row(self, run: int, before: str, after: str) -> dict[str, Any]:
        """The one comparison of two profiles' kernels of a run: `default:dot2`."""
        document = self.diff(f"{run}:{before}", f"{run}:{after}")
        (row,) = document["comparisons"]
        return {**row, "exit_code": document["exit_code"]}

    def shown(self, run: int, part: str = "") -> dict[str, Any]:
        document: dict[str, Any] = self.call("show", f"{run}{part}", "--json").json
        return document


@pytest.fixture(name="lab", scope="module", params=["model", pytest.param("gpu", marks=pytest.mark.gpu)])
def a_lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(request.param, tmp_path_factory.mktemp(f"cases-{request.param}"))


def states(row: dict[str, Any], kind: str) -> dict[str, str]:
    return {layer["name"]: layer["state"] for layer in row["attribution"][kind]}


# --- Flags -------------------------------------------------------------------------------------


def test_contraction_is_on_by_default(lab: Lab) -> None:
    """GPU and CPU disagreed although fast math was off (SauersML/gam#1686)."""
    row = lab.row(lab.flags, "default:dot2", "no-fmad:dot2")
    assert (row["verdict"], row["moved"], row["first_layer"]) == ("changed", ["build"], "flags")
    assert (row["gated"], row["exit_code"]) == (True, 1)
    causes = states(row, "causes")
    assert (causes["input"], causes["launch shape"], causes["source"]) == ("same", "same", "same")
    assert (row["outputs"]["o"]["changed"], row["outputs"]["o"]["of"]) == (1011, 4096)


def test_identical_except_in_the_debug_build(lab: Lab) -> None:
    """Two groups: the assembler's level keeps contraction, a debug build does not contract (E3SM#7140)."""
    (row,) = [r for r in lab.shown(lab.flags)["matrix"] if r["kernel"] == "dot2"]
    asked = {"default", "ptxas-O0", "debug", "no-fmad"}
    groups = [asked.intersection(group["profiles"]) for group in row["groups"]]
    found = [sorted(group) for group in groups if group]
    assert sorted(found) == [["debug", "no-fmad"], ["default", "ptxas-O0"]]


def test_of_several_flags_none_is_named_alone(lab: Lab) -> None:
    row = lab.row(lab.flags, "default:dot2", "no-fmad-ptxas-O0:dot2")
    assert (row["verdict"], row["first_layer"]) == ("changed", "flags")
    assert row["attribution"]["sentence"].startswith(
        "build moved: flags (-fmad=true → -fmad=false, with --ptxas-options=-O0), none of them singled out"
    )


def test_fast_math_breaks_one_part_only(lab: Lab) -> None:
    """Kept subnormals give the one kernel its bits back; the division stays approximate (picongpu#1489)."""
    whole = lab.row(lab.flags, "default:subnormal_add", "fast-math:subnormal_add")
    assert (whole["verdict"], whole["first_layer"]) == ("changed", "flags")
    kept = lab.diff(f"{lab.flags}:default", f"{lab.flags}:fast-math-no-ftz")
    verdicts = {row["kernel"]: row for row in kept["comparisons"]}
    assert verdicts["subnormal_add"]["verdict"] == "same"
    if lab.measured:
        assert verdicts["scaled_sum"]["verdict"] == "changed"
    else:
        # An approximate division has no bits that PTX defines: refused, never guessed.
        assert verdicts["scaled_sum"]["verdict"] == "no_result"
        assert "div.approx" in verdicts["scaled_sum"]["note"]


def test_a_switch_that_changed_nothing(lab: Lab) -> None:
    """Identical code is told apart from identical bits (slang#12799)."""
    inert = lab.row(lab.flags, "default:scaled_sum", "no-fmad:scaled_sum")
    assert (inert["verdict"], inert["exit_code"]) == ("same", 0)
    assert inert["attribution"]["alarms"] == ["profiles whose code is identical"]
    equal_bits = lab.row(lab.flags, "no-fmad:dot2", "debug:dot2")
    assert (equal_bits["verdict"], equal_bits["attribution"]["alarms"]) == ("same", [])
    matrix = {row["kernel"]: row for row in lab.shown(lab.flags)["matrix"]}
    assert any({"default", "no-fmad"} <= set(group) for group in matrix["scaled_sum"]["inert"])
    assert not any({"no-fmad", "debug"} <= set(group) for group in matrix["dot2"]["inert"])


# --- Toolkits ----------------------------------------------------------------------------------


def test_the_functions_that_moved_with_the_toolkit_are_listed(lab: Lab) -> None:
    """The same card, and floats moved with the toolkit (forums.developer.nvidia.com 182894)."""
    document = lab.diff(f"{lab.toolkits}:cuda12", f"{lab.toolkits}:default")
    by_verdict: dict[str, set[str]] = {}
    for row in document["comparisons"]:
        by_verdict.setdefault(row["verdict"], set()).add(row["kernel"])
        if row["verdict"] in ("changed", "same"):
            assert (row["moved"], row["first_layer"]) == (["build"], "toolchain")
    approximate = {"math_cbrtf", "math_powf"}
    changed = {"math_atan2f", "math_atan2"}
    assert by_verdict["changed"] - approximate == changed
    assert by_verdict["same"] - approximate == set(MATH) - approximate - changed
    if lab.measured:
        assert "math_cbrtf" in by_verdict["changed"]
    else:
        assert by_verdict["no_result"] == approximate
    assert sum("atan2" in reason for reason in document["reasons"]) == 2


def test_two_toolkits_that_make_the_same_code_are_quiet(lab: Lab) -> None:
    """False alarms from preambles and PTX text (NVIDIA/Fuser#1007)."""
    row = lab.row(lab.toolkits, "cuda12:math_cospif", "default:math_cospif")
    assert (row["verdict"], row["exit_code"]) == ("same", 0)
    assert states(row, "effects")["normalised SASS and constants"] == "same"
    assert "code the same; no bit moved" in row["attribution"]["sentence"]
    assert row["attribution"]["alarms"] == []


def test_a_profiles_name_that_means_another_compiler_is_said(lab: Lab, tmp_path: Path) -> None:
    """The compiler's version went unrecorded (PRUNERS/FLiT#88, #340)."""
    other = tmp_path / "profiles.toml"
    other.write_text('[profile.default]\ncompiler = "nvrtc"\ntoolkit = ">=12,<13"\n')
    then = lab.run(("math_atan2f",), cases=("moved-1",), profiles_file=other)
    now = lab.run(("math_atan2f",), cases=("moved-1",))
    (row,) = lab.diff(str(then), str(now))["comparisons"]
    assert (row["verdict"], row["moved"], row["first_layer"]) == ("changed", ["build"], "toolchain")
    note = row["attribution"]["notes"][0]
    assert note.startswith("profile redefined: toolchain nvrtc 12.")
    assert " → nvrtc 13." in note
    sides = row["sides"]
    assert (sides["baseline"]["first_bits"], sides["candidate"]["first_bits"]) == ("0xbdaaac23", "0xbdaaac24")


# --- Shapes ------------------------------------------------------------------------------------


def test_a_rows_bits_depend_on_the_batch(lab: Lab) -> None:
    """Told always; a failure only where batch invariance is declared (llama.cpp#3014, sglang#19431)."""
    plain = lab.row(lab.plain, "default:row0_of_4", "default:row0_of_8")
    assert (plain["verdict"], plain["moved"], plain["first_layer"]) == ("changed", ["shape"], "launch shape")
    assert (plain["gated"], plain["exit_code"]) == (False, 0)
    assert "neither declares batch_invariant" in plain["note"]
    declared = lab.row(lab.plain, "default:row0_of_4_invariant", "default:row0_of_8_invariant")
    assert (declared["verdict"], declared["moved"]) == ("changed", ["shape"])
    assert (declared["gated"], declared["exit_code"]) == (True, 1)


def test_a_sum_of_zeros_changes_its_sign(lab: Lab) -> None:
    """32 times -0.0, with and without padding lanes of +0.0 (cccl#6008, pytorch#193660)."""
    row = lab.row(lab.plain, "default:zeros_exact", "default:zeros_padded")
    assert (row["verdict"], row["moved"]) == ("changed", ["shape"])
    total = row["outputs"]["total"]
    assert (total["changed"], total["max_ulp"]) == (1, 0)
    assert total["note"] == "sign of zero only, 0 ULP apart"
    assert (total["elements"][0]["before"], total["elements"][0]["after"]) == ("0x80000000", "0x00000000")


def test_fusing_buffers_changes_sums(lab: Lab) -> None:
    """The start rank follows from the chunk; where it varies in a build, determinism is lost (nccl#157)."""
    fused = lab.row(lab.plain, "default:ring", "default:ring_fused")
    assert (fused["verdict"], fused["moved"]) == ("changed", ["shape"])
    varying = lab.row(lab.plain, "default:ring", "default:ring_varying")
    assert (varying["verdict"], varying["exit_code"]) == ("determinism_lost", 3)


# --- Bits --------------------------------------------------------------------------------------


def test_a_nan_is_never_a_number(lab: Lab) -> None:
    """A compare tool called NaN and 1.0 identical (ESMCI/cime#4131)."""
    payload = lab.row(lab.plain, "default:slot_nan_a", "default:slot_nan_b")
    assert (payload["verdict"], payload["outputs"]["values"]["note"]) == ("changed", "NaN payload only")
    assert "code differs" in payload["attribution"]["sentence"]
    number = lab.row(lab.plain, "default:slot_nan_a", "default:slot_number")
    assert (number["verdict"], number["exit_code"]) == ("changed", 1)
    assert number["outputs"]["values"]["note"] == "1 of 1 from NaN to a number"
    assert (number["outputs"]["values"]["first"], number["outputs"]["values"]["max_ulp"]) == (2, None)
    same = lab.row(lab.plain, "default:slot_nan_a", "default:slot_nan_a")
    assert (same["verdict"], same["exit_code"]) == ("same", 0)


def test_which_buffer_and_which_element_moved(lab: Lab) -> None:
    """One lumped hash cannot say what moved (E3SM#7129, cime#884)."""
    row = lab.row(lab.plain, "default:two_outputs", "default:two_outputs_one_moved")
    sums, squares = row["outputs"]["sums"], row["outputs"]["squares"]
    assert (sums["changed"], sums["of"]) == (0, 64)
    assert (squares["changed"], squares["of"], squares["first"], squares["max_ulp"]) == (1, 64, 37, 1)


def test_declared_fields_have_one_pattern_whatever_the_padding(lab: Lab) -> None:
    """Nondeterminism came from hashed padding (basis_universal#375)."""
    (row,) = lab.shown(lab.plain, ":default:padded_pairs")["results"]
    assert (row["outputs"]["pairs"]["dtype"], row["outputs"]["pairs"]["distinct"]) == ("struct", 1)


# --- Determinism -------------------------------------------------------------------------------


def test_the_order_of_an_output_varies_while_integer_atomics_stay_stable(lab: Lab) -> None:
    """Appending churns and is no failure; a sum of integers has one pattern (traccc#163)."""
    document = lab.diff(str(lab.plain), str(lab.again))
    rows = {row["kernel"]: row for row in document["comparisons"]}
    assert rows["append"]["verdict"] == "churn"
    assert rows["append"]["churn"]["note"] == "order only, same multiset"
    assert rows["append"]["outputs"]["count"]["changed"] == 0
    assert rows["integer_sum"]["verdict"] == "same"
    assert [rows[k]["gated"] for k in ("append", "integer_sum")] == [False, False]


def test_a_missing_barrier_shows_and_is_never_blessed(lab: Lab, tmp_path: Path) -> None:
    """Wrong values now and then (kokkos#5475, qmcpack#2883)."""
    (kept,) = lab.shown(lab.plain, ":default:barrier_kept")["results"]
    assert kept["outputs"]["sums"]["distinct"] == 1
    row = lab.row(lab.plain, "default:barrier_kept", "default:barrier_missing")
    assert (row["verdict"], row["exit_code"]) == ("determinism_lost", 3)
    loss = row["loss"]
    assert (loss["output"], loss["of"]) == ("sums", 8)
    assert 0 < loss["odd"] < 8
    assert loss["advice"][0].startswith("compute-sanitizer --tool racecheck")
    said = lab.call(
        "bless", lab.plain, "barrier_missing", "--reason", "r", "--ledger", tmp_path / "reprodb.lock"
    )
    assert said.code == 2
    assert "determinism is lost" in said.err
    assert not (tmp_path / "reprodb.lock").exists()


# --- Nothing to compare ------------------------------------------------------------------------


def test_a_launch_that_failed_is_no_zero(lab: Lab) -> None:
    """Failed launches looked like zeros and passed (HeCBench#80)."""
    (row,) = lab.shown(lab.plain, ":default:threads_1025")["results"]
    assert (row["status"], row["outputs"]) == ("launch_failed", {})
    assert ("CUDA_ERROR_INVALID_VALUE" if lab.measured else "1025") in row["error"]
    compared = lab.row(lab.plain, "default:threads_1025", "default:threads_1025")
    assert (compared["verdict"], compared["exit_code"]) == ("no_result", 4)


def test_nothing_in_common_is_no_success_and_the_number_is_printed(lab: Lab) -> None:
    """Green with 0 of 0 compared (almide#985)."""
    said = lab.call("diff", lab.flags, lab.again)
    assert said.code == 4
    assert "; 0 compared" in said.out


def test_another_architecture_is_told_and_does_not_gate(tmp_path: Path) -> None:
    """One architecture's code sums in another order (causal-conv1d#105). No claim which is right."""
    lab = Lab("model", tmp_path)
    old, new = lab.run(("arch_order",), arch="sm_80"), lab.run(("arch_order",), arch="sm_90")
    document = lab.diff(str(old), str(new))
    (row,) = document["comparisons"]
    assert (row["verdict"], row["moved"], row["first_layer"]) == ("changed", ["build"], "architecture")
    assert (row["gated"], document["exit_code"]) == (False, 0)
    assert row["note"] == "not gated: another architecture (sm_80 → sm_90)"
    assert row["loss"] is None
    for run in (old, new):
        (side,) = lab.shown(run)["results"]
        assert (side["distinct"], side["accuracy"]) == (1, "ok")


@pytest.mark.gpu
def test_code_of_another_architecture_has_no_result_on_a_gpu(tmp_path: Path) -> None:
    """A cubin that does not fit the device is an error and never a stored zero (HeCBench#80)."""
    lab = Lab("gpu", tmp_path)
    (row,) = lab.shown(lab.run(("dot2",), arch="sm_80"))["results"]
    assert row["status"] == "launch_failed"
    assert row["error"]
    assert row["outputs"] == {}


def test_a_required_gpu_that_is_not_there_is_no_answer(tmp_path: Path) -> None:
    """Green with no GPU (almide#985)."""
    command = [sys.executable, "-m", "reprodb", "run", "--device", "gpu", "--db", str(tmp_path / "x.db")]
    done = subprocess.run(
        command, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 4
    assert not done.stdout


# --- What a GPU gave ---------------------------------------------------------------------------


def test_every_guaranteed_output_is_what_an_h200_gave(lab: Lab) -> None:
    """Measured under NVRTC 12.6 and 13.0; whatever the model gives bits for, it gives these."""
    given = {
        (row["kernel"], row["case"], row["profile"]): row["outputs"]
        for row in json.loads(EVIDENCE.read_text())["rows"]
        if row["suite"] == "cases"
    }
    compared = 0
    for run in (lab.plain, lab.flags, lab.toolkits):
        for row in lab.shown(run)["results"]:
            outputs = given[row["kernel"], row["case"], row["profile"]]
            for name, output in row["outputs"].items():
                kept = output["determinism"] != "not_guaranteed" and output["distinct"] == 1
                if kept and outputs[name]["distinct"] == 1:
                    measured = outputs[name].get("bits") or outputs[name]["sha256"]
                    assert measured in (output["first_bits"], output["sha256"]), (
                        row["kernel"],
                        row["profile"],
                    )
                    compared += 1
    assert compared >= 45
