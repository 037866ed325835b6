"""`reprodb suite check`: the bundled suite is clean, and a careless one is told everything."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from reprodb import inspection
from reprodb.atomics import float_atomics
from reprodb.domain import Profile
from reprodb.inspection import Inspection, Severity, inspect
from reprodb.suite import bundled_suite, load_suite, read_suite
from reprodb.toolchains import catalog
from tests.built import built
from tests.command import SCHEMAS, reprodb, valid

MANIFEST = """\
[kernel]
name = "NAME"
source = "NAME.cu"
operation = "sum of x"
determinism = "run_to_run"
accumulator = "float32"
order = "as written"
tags = ["test"]
[[buffer]]
name = "sums"
dtype = "float32"
size = 4
role = "result"
[[stage]]
entry = "NAME"
grid = 4
block = 32
args = ["x", "n", "sums"]
[[case]]
input = { pattern = "normal", seed = 68 }
n = 128
reference = "sum"
rel_tol = 1e-4
"""
SERIAL = "for (unsigned long long i = 0; i < n / 4; ++i) sum += x[blockIdx.x * (n / 4) + i];"
SOURCE = """\
HELPERS
extern "C" __global__ void NAME(const float* x, unsigned long long n, float* sums)
{
    float sum = 0.0f;
    BODY
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
"""
SHARED_ADD = """\
__shared__ float all;
    all = 0;
    __syncthreads();
    atomicAdd(&all, x[threadIdx.x]);
    __syncthreads();
    sum = all;"""
SWAP = """\
static __device__ __noinline__ float mixed(float a, float b) { return a * 0.5f + b; }
static __device__ void addBySwap(float* place, float value)
{
    unsigned int* word = (unsigned int*)place;
    unsigned int old = *word, seen;
    do { seen = old; old = atomicCAS(word, seen, __float_as_uint(SUM)); } while (old != seen);
}
"""
LOCK = "__device__ int taken;"
LOCKED = """\
while (atomicCAS(&taken, 0, 1) != 0) {}
    __threadfence();
    sums[blockIdx.x] += x[threadIdx.x];
    __threadfence();
    atomicExch(&taken, 0);"""
CARELESS = {
    # name: (helpers, body, [(old, new) of the manifest])
    "fine": ("", SERIAL, []),
    "global_add": ("", "atomicAdd(sums + blockIdx.x, x[threadIdx.x]);", []),
    "shared_add": ("", SHARED_ADD, []),
    "explained": ("", SHARED_ADD, [("tags =", 'atomics = "one thread a slot"\ntags =')]),
    "unneeded": ("", SERIAL, [("tags =", 'atomics = "none"\ntags =')]),
    "open": ("", SHARED_ADD, [("run_to_run", "not_guaranteed")]),
    "swapped": (SWAP.replace("SUM", "__uint_as_float(seen) + value"), "addBySwap(sums, x[threadIdx.x]);", []),
    "called": (SWAP.replace("SUM", "mixed(__uint_as_float(seen), value)"), "addBySwap(sums, 1.5f);", []),
    "largest": (SWAP.replace("SUM", "fmaxf(__uint_as_float(seen), value)"), "addBySwap(sums, 1.5f);", []),
    "locked": (LOCK, LOCKED, []),
    "taking_turns": (LOCK, LOCKED, [("tags =", 'atomics = "one thread a lock"\ntags =')]),
    "counted": ("__device__ unsigned int c;", f"atomicAdd(&c, 1u); {SERIAL}", []),
    "elsewhere": (
        'extern "C" __global__ void other(float* y) { atomicAdd(y, 1.0f); }',
        SERIAL,
        [],
    ),
    "friendly": ("", SERIAL, [('{ pattern = "normal", seed = 68 }', '"ones"')]),
    "friendly_doubles": (
        "",
        SERIAL,
        [('accumulator = "float32"', 'accumulator = "float64"')],
    ),
    "two_terms": ("", SERIAL, [("n = 128", "n = 8")]),
    "half_friendly": (
        "",
        SERIAL,
        [("[[case]]", '[[case]]\ninput = "ones"\nn = 128\nreference = "sum"\nrel_tol = 1e-5\n[[case]]')],
    ),
    "nameless": ("", SERIAL, [('order = "as written"\ntags = ["test"]\n', "")]),
    "untried": ("", SERIAL, [("tags =", "batch_invariant = true\ntags =")]),
    "idle_define": ("", SERIAL, [("tags =", "defines = { IDLE = 3 }\ntags =")]),
    "one_word": ("", SERIAL, [("size = 4", "size = 1")]),
    "too_tight": ("", SERIAL, [("1e-4", "1e-9")]),
    "too_wide": ("", SERIAL, [("1e-4", "0.5")]),
    "unjudged": ("", SERIAL, [('reference = "sum"\nrel_tol = 1e-4\n', "")]),
    "excused": (
        "",
        SERIAL,
        [('reference = "sum"\nrel_tol = 1e-4\n', ""), ("tags =", 'no_reference = "why"\ntags =')],
    ),
    "broken": ("", "sum += ;", []),
    "absent": ("", SERIAL, [('entry = "absent"', 'entry = "gone"')]),
    "misspelt": ("", SERIAL, [("run_to_run", "run_to_rum"), ("n = 128", "n = -1")]),
    "cut_short": ("", SERIAL, [("[[case]]", "[[case")]),
    "astray": ('#include "../../outside.cuh"', SERIAL, []),
}


@pytest.fixture(scope="module")
def careless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("checked") / "careless"
    for name, (helpers, body, edits) in CARELESS.items():
        home = root / name
        home.mkdir(parents=True)
        manifest = MANIFEST.replace("NAME", name)
        for old, new in edits:
            assert old in manifest, (name, old)
            manifest = manifest.replace(old, new, 1)
        source = SOURCE.replace("HELPERS", helpers).replace("BODY", body).replace("NAME", name)
        (home / "kernel.toml").write_text(manifest, encoding="utf-8")
        (home / f"{name}.cu").write_text(source, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def found(careless: Path) -> Inspection:
    return inspect(careless)


def test_the_bundled_suite_is_clean() -> None:
    said = reprodb("suite", "check")
    assert said.code == 0, said.out
    assert said.out.strip().endswith("nothing found")


@pytest.mark.parametrize(
    ("kernel", "check", "words"),
    [
        ("global_add", "atomics", "has floats added in global memory"),
        ("shared_add", "atomics", "has floats added in shared memory (atom.shared"),
        ("swapped", "atomics", "a compare-and-swap loop with float arithmetic in it"),
        ("called", "atomics", "a compare-and-swap loop with float arithmetic in it"),
        (
            "locked",
            "atomics",
            "has floats added under a lock in global memory (atom.global.cas.b32 in locked",
        ),
        ("cut_short", "manifest", "cut_short/kernel.toml: is not TOML: "),
        ("astray", "manifest", 'includes "../../outside.cuh", which lies outside the suite'),
        ("unneeded", "atomics", "explains atomics that its code does not have"),
        ("friendly", "friendly", "no case can show another order (ones-128: every order is exact"),
        ("nameless", "tags", "has no tags"),
        ("nameless", "order", "does not say its order"),
        ("untried", "batch", "claims batch_invariant and serves no batches"),
        ("idle_define", "define", "nothing uses the define IDLE"),
        ("one_word", "witness", "records one word"),
        ("too_tight", "tolerance", "rel_tol = 1e-09 of normal-seed68-128 is below half an ULP"),
        ("too_wide", "tolerance", "rel_tol = 0.5 of normal-seed68-128 is above 0.01"),
        ("unjudged", "reference", "nothing says what is right for normal-seed68-128"),
        ("broken", "compile", "error"),
        ("absent", "compile", "no function 'gone' in the compiled code"),
    ],
)
def test_what_is_found(found: Inspection, kernel: str, check: str, words: str) -> None:
    texts = [r.text for r in found.remarks if (r.kernel, r.check) == (kernel, check)]
    assert len(texts) == 1
    assert words in texts[0]


def test_what_is_advised_would_show_an_order(found: Inspection) -> None:
    """128 normal floats are summed exactly in doubles: to ask for them again would help nobody."""
    remedies = {r.kernel: r.remedy for r in found.remarks if r.check == "friendly"}
    assert remedies == {
        "friendly": "pattern = 'normal' or 'wide'",
        "friendly_doubles": "pattern = 'wide' with binades = 40",
        "two_terms": "more elements than n = 8",
    }


def test_every_problem_of_a_manifest_is_told_and_the_other_kernels_are_looked_at(found: Inspection) -> None:
    texts = [r.text for r in found.remarks if r.kernel == "misspelt"]
    assert [text.split(";")[0] for text in texts] == [
        "misspelt/kernel.toml: [[case]] 1: n = -1",
        "misspelt/kernel.toml: [kernel]: determinism = 'run_to_rum'",
    ]
    assert {r.severity for r in found.remarks if r.check == "manifest"} == {Severity.ERROR}
    assert found.kernels == len(CARELESS)
    assert {r.check for r in found.remarks} >= {"atomics", "compile", "friendly", "tolerance"}


QUIET = {
    *("fine", "explained", "taking_turns", "open", "largest", "counted", "elsewhere", "half_friendly"),
    "excused",
}


@pytest.mark.parametrize("kernel", sorted(QUIET))
def test_what_is_not(found: Inspection, kernel: str) -> None:
    """The largest of floats has no order, counting is no float sum, another kernel's atomics are its own."""
    assert [r for r in found.remarks if r.kernel == kernel] == []


def test_every_remark_is_of_a_kernel_that_earns_it(found: Inspection) -> None:
    assert {r.kernel for r in found.remarks} == set(CARELESS) - QUIET


def test_exit_codes_and_documents(careless: Path, found: Inspection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "inspect", lambda root: found)
    said = reprodb("suite", "check", "--suite", careless, "--json")
    assert said.code == 2
    document = valid(said.json, "suite-check")
    assert document["exit_code"] == 2
    assert len(document["findings"]) == len(found.remarks)
    warnings = tuple(r for r in found.remarks if r.severity is Severity.WARNING)
    assert Inspection("s", 1, None, warnings).exit_code == 1
    assert Inspection("s", 1, None, ()).exit_code == 0
    told = reprodb("suite", "check", "--suite", careless).out
    assert "warning [atomics] shared_add: claims run_to_run, and has floats added in shared memory" in told
    assert "\nerror [manifest] misspelt/kernel.toml: [kernel]: determinism = 'run_to_rum'; allowed: " in told
    assert f"suite careless, {len(CARELESS)} kernels, compiled by nvrtc " in told
    assert told.strip().endswith("6 errors, 17 warnings")


def test_a_manifest_that_cannot_be_read_is_an_error_for_each_problem(tmp_path: Path) -> None:
    home = tmp_path / "bad" / "k"
    home.mkdir(parents=True)
    (home / "kernel.toml").write_text(MANIFEST.replace("NAME", "k").replace("run_to_run", "run_to_rum"))
    (home / "k.cu").write_text('#include "../../outside.cuh"\n')
    said = reprodb("suite", "check", "--suite", tmp_path / "bad")
    assert said.code == 2
    found = "error [manifest] k/kernel.toml: [kernel]: determinism = 'run_to_rum'; allowed: not_guaranteed, "
    assert found in said.out
    assert said.out.strip().endswith("suite bad, 1 kernel: 1 error, 0 warnings")


def test_a_serial_kernel_that_cannot_be_read_is_one_finding(tmp_path: Path) -> None:
    """The batched kernel names it, and is not blamed for it."""
    root = tmp_path / "rows"
    for folder in ("_lib", "row_logits_serial", "row_logits_batched"):
        shutil.copytree(bundled_suite() / folder, root / folder)
    manifest = root / "row_logits_serial" / "kernel.toml"
    manifest.write_text(manifest.read_text(encoding="utf-8").replace("[[stage]]", "[[stage"))
    reading = read_suite(root)
    assert [problem.where for problem in reading.problems] == ["row_logits_serial/kernel.toml"]
    assert [kernel.name for kernel in reading.suite.kernels] == ["row_logits_batched"]


def test_the_parts_of_a_single_problem_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    said = reprodb("suite", "check", "--suite", tmp_path / "bad")
    assert "bad: no */kernel.toml in this folder; allowed: one folder a kernel\n" in said.out


def test_without_a_compiler_it_says_what_was_not_checked(
    careless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "find", lambda *args: ())
    found = inspect(careless)
    assert found.toolchain is None
    assert [r.text for r in found.remarks if r.check == "toolchain"] == [
        "no compiler was found: neither compiling nor atomics were checked"
    ]


@pytest.mark.parametrize(
    ("opcode", "operands", "found"),
    [
        ("red.global.add.f64", "[%rd1], %fd1", True),
        ("atom.shared.add.noftz.f16x2", "%r1, [%rd1], %r2", True),
        ("multimem.red.relaxed.gpu.global.add.f32", "[%rd1], %f1", True),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32", "[%rd1], [%rd2], %r1", True),
        ("red.global.add.u32", "[%rd1], %r1", False),
        ("atom.global.exch.b32", "%r1, [%rd1], %r2", False),
        ("red.global.max.s32", "[%rd1], %r1", False),
        ("atom.global.cas.b32", "%r1, [%rd1], %r2, %r3", False),
    ],
)
def test_forms_of_atomics(opcode: str, operands: str, found: bool) -> None:
    ptx = f""".version 8.5
.target sm_90
.address_size 64
.visible .entry k()
{{
    .reg .f32 %f<4>; .reg .f64 %fd<4>; .reg .b32 %r<4>; .reg .b64 %rd<4>;
    {opcode} {operands};
    ret;
}}
"""
    assert bool(float_atomics(ptx, ("k",))) is found


@pytest.mark.soak
def test_atomics_of_the_bundled_kernels() -> None:
    """What declares nothing adds floats as they arrive, what guarantees does not; integers are no floats."""
    artifacts = built(bundled_suite(), Profile("default", "any", "any"))
    for kernel in load_suite(bundled_suite()).kernels:
        if not kernel.stages:
            continue
        found = float_atomics(artifacts[kernel.name].ptx or "", [s.entry for s in kernel.stages])
        assert bool(found) is (not kernel.determinism.guaranteed and kernel.name != "append_atomic"), (
            kernel.name
        )


FILES = re.compile(r"^```(?:cuda|toml)\n(?://|#) (mysums/\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_pages_own_kernel_passes(tmp_path: Path) -> None:
    """docs/adding-a-kernel.md, laid out as its first comments say."""
    text = (Path(__file__).parents[1] / "docs" / "adding-a-kernel.md").read_text(encoding="utf-8")
    files = FILES.findall(text)
    assert len(files) == 3
    for name, content in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    found = inspect(tmp_path / "mysums")
    assert (found.suite, found.kernels, found.remarks) == ("mysums", 1, ())


def test_the_page_explains_every_check() -> None:
    text = (Path(__file__).parents[1] / "docs" / "adding-a-kernel.md").read_text(encoding="utf-8")
    schema = json.loads((SCHEMAS / "suite-check.schema.json").read_text(encoding="utf-8"))
    checks = schema["properties"]["findings"]["items"]["properties"]["check"]["enum"]
    assert [check for check in checks if f"`{check}`" not in text] == []
