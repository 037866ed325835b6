"""Normalising and counting code, on hand-written text and on what real compilers emit."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprodb.codegen import (
    all_numerics,
    code_delta,
    code_of,
    constants,
    contractions_undone,
    delta_phrase,
    normalise_ptx,
    normalise_sass,
    opcode_name,
    ptx_counts,
    sass_counts,
)
from reprodb.domain import Code, FunctionCounts
from reprodb.findings import CodeDelta

# --- PTX by hand ---------------------------------------------------------------------------------

PTX = """\
// Compiler Build ID: CL-1
.version 8.5
.target sm_90
.address_size 64
.visible .entry sum(
	.param .u64 sum_param_0
)
{
	.reg .pred 	%p<3>;
	.reg .f32 	%f<4>;
	.reg .b64 	%rd<3>;
	ld.param.u64 	%rd1, [sum_param_0];
	mov.u32 	%r1, %tid.x;
	@%p1 bra 	$L__BB0_2;
	fma.rn.f32 	%f3, %f1, %f1, 0f3E800000; // x*x + 0.25
$L__BB0_2:
	ret;
}
"""


def test_ptx_comments_versions_names_and_line_info_go() -> None:
    renamed = (
        PTX.replace("CL-1", "CL-2").replace("8.5", "9.0").replace("sm_90", "sm_80")
        .replace("%f3", "%f77").replace("%rd1", "%rd9").replace("$L__BB0_2", "$L__BB9_7")
        .replace("\tret;", "\t.loc\t1 10 3\n$L__tmp1:\n\tret;")
        .replace("%f<4>", "%f<90>").replace("%rd<3>", "%rd<12>")
    )  # fmt: skip
    renamed += '.file\t1 "/somewhere/k.cu"\n.section .debug_loc { .b8 0 }\n'
    assert renamed != PTX
    assert normalise_ptx(renamed) == normalise_ptx(PTX)
    assert "somewhere" not in normalise_ptx(renamed)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("fma.rn.f32", "fma.rn.ftz.f32"),
        ("0f3E800000", "0f3E800001"),
        ("%f1, %f1, 0f", "%f1, %f2, 0f"),
        ("%tid.x", "%ctaid.x"),
        ("@%p1", "@!%p1"),
        ("@%p1", "@%p2"),
        ("bra \t$L__BB0_2", "bra \t$L__BB0_3"),
        ("sum", "mean"),
    ],
)
def test_ptx_that_does_something_else_stays_different(old: str, new: str) -> None:
    text = PTX.replace("mov.u32", "setp.eq.f32 %p2, %f1, %f2;\n\tmov.u32") if new == "@%p2" else PTX
    assert old in text
    assert normalise_ptx(text.replace(old, new)) != normalise_ptx(text)


def test_ptx_inner_scopes_have_names_of_their_own() -> None:
    """Inline assembly declares names again in braces; vector operands have braces that are no scope."""

    def body(inner: str) -> str:
        return PTX.replace(
            "\tret;",
            f"\t{{\n\t.reg .u32 %r1, {inner};\n\tmov.b64 {{%r1,{inner}}}, %rd1;\n\t}}\n\tret;",
        )

    assert normalise_ptx(body("%hi")) == normalise_ptx(body("%other"))
    assert "{%" in normalise_ptx(body("%hi"))
    assert ptx_counts(body("lo"))["sum"]["mov.b64"] == 1
    assert "lo" not in ptx_counts(body("lo"))["sum"]


def test_ptx_names_that_hash_a_path_go() -> None:
    text = "\n.global .align 4 .b8 _ZN51_INTERNAL_%s_4_k_cu_d41d8cd9_1235tableE[4];\n"
    assert normalise_ptx(PTX + text % "0a1b2c3d") == normalise_ptx(PTX + text % "99999999")


def test_ptx_counts_by_function() -> None:
    counts = ptx_counts(PTX)["sum"]
    assert counts == {"ld.param.u64": 1, "mov.u32": 1, "bra": 1, "fma.rn.f32": 1, "ret": 1}


names = st.lists(st.integers(1, 99), min_size=4, max_size=4, unique=True)


@given(names, names)
def test_any_renaming_of_registers_changes_nothing(one: list[int], two: list[int]) -> None:
    def text(n: list[int]) -> str:
        lines = [f"mul.f32 %f{n[0]}, %f{n[1]}, %f{n[2]};", f"add.f32 %f{n[3]}, %f{n[0]}, %f{n[1]};"]
        return PTX.replace("%f<4>", "%f<100>").replace("\tret;", "\n".join(lines) + "\n\tret;")

    # The function's own %f1 and %f3 may be among the names or not: leave them out.
    plain = [text([n + 100 for n in side]) for side in (one, two)]
    assert normalise_ptx(plain[0]) == normalise_ptx(plain[1])
    assert normalise_ptx(normalise_ptx(plain[0])) == normalise_ptx(plain[0])


# --- SASS by hand --------------------------------------------------------------------------------

SASS = """\
//--------------------- .text.sum --------------------------
	.section	.text.sum,"ax",@progbits
	.align	128
        .global         sum
        .type           sum,@function
sum:
.text.sum:
        /*0000*/                   S2R R2, SR_TID.X ;
        /*0010*/               @P0 BRA `(.L_x_3) ;
        /*0020*/                   FFMA R9, R4.reuse, R4, 0.25 ;
        /*0030*/                   LDC R1, c[0x3][R2] ;
.L_x_3:
        /*0040*/                   EXIT ;
.L_x_4:
        /*0050*/                   BRA `(.L_x_4);
        /*0060*/                   NOP;
        /*0070*/                   NOP;
.L_x_5:

//--------------------- .nv.constant3 --------------------------
	.section	.nv.constant3,"a",@progbits
	.align	4
.nv.constant3:
	.type		table,@object
table:
        /*0000*/ 	.byte	0x00, 0x00, 0xc0, 0x3f
//--------------------- .nv.constant0.sum --------------------------
	.section	.nv.constant0.sum,"a",@progbits
.nv.constant0.sum:
	.zero		552
"""


def test_sass_in_normal_form() -> None:
    assert normalise_sass(SASS) == (
        ".text sum\n"
        "S2R R2, SR_TID.X\n"
        "@P0 BRA `(L0)\n"
        "FFMA R9, R4, R4, 0.25\n"
        "LDC R1, c[0x3][R2]\n"
        "L0:\n"
        "EXIT\n"
        "L1:\n"
        "BRA `(L1)\n"
    )
    assert normalise_sass(normalise_sass(SASS)) == normalise_sass(SASS)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (".L_x_3", ".L_x_33"),
        ("R4.reuse", "R4"),
        ("        /*0070*/                   NOP;\n", ""),
        ("/*0020*/", "/*0120*/"),
        ("EXIT ;", "EXIT ;  /* 0x000000000000794d */"),
        ("S2R R2, SR_TID.X ;", "S2R R2, SR_TID.X &wr=0x0 ?trans1 ;"),
        ("        /*0040*/", ".L_x_9:\n        /*0040*/"),  # a mark that nothing branches to
    ],
)
def test_sass_annotations_go(old: str, new: str) -> None:
    assert old in SASS
    assert normalise_sass(SASS.replace(old, new)) == normalise_sass(SASS)


@pytest.mark.parametrize(
    ("old", "new"), [("FFMA", "FMUL"), ("0.25", "0.5"), ("@P0", "@!P0"), ("R4, 0", "R5, 0"), ("0x3]", "0x2]")]
)
def test_sass_that_does_something_else_stays_different(old: str, new: str) -> None:
    assert normalise_sass(SASS.replace(old, new, 1)) != normalise_sass(SASS)


def test_constants_are_hashed_and_launch_parameters_are_not() -> None:
    assert constants(SASS) == ".nv.constant3\n\ntable:0000c03f\n"
    assert code_of(None, SASS).constants != code_of(None, SASS.replace("0x3f", "0x40")).constants
    assert code_of(None, SASS).constants == code_of(None, SASS.replace("552", "560")).constants


def test_however_the_disassembler_groups_bytes_they_are_the_same_constants() -> None:
    assert constants(SASS.replace(".byte\t0x00, 0x00, 0xc0, 0x3f", ".word\t0x3fc00000")) == constants(SASS)


@pytest.mark.parametrize(
    ("instruction", "name"),
    [
        ("FFMA R9, R4, R4, 0.25", "FFMA"),
        ("@!P0 FADD.FTZ R6, R5, R6", "FADD.FTZ"),
        ("FFMA.RM R1, R2, R3, R4", "FFMA.RM"),
        ("MUFU.RCP R1, R2", "MUFU.RCP"),
        ("HFMA2.MMA R0, -RZ, RZ, 0, 0", "MOV.HFMA2"),
        ("HFMA2 R3, -RZ, RZ, 1.875, 0", "MOV.HFMA2"),
        ("HFMA2.MMA R0, R1, R2, R3", "HFMA2"),
        ("HFMA2.BF16_V2 R0, R1, R2, R3", "HFMA2.BF16_V2"),
        ("FADD R0, -RZ, |R4|", "MOV.FADD"),
        ("FADD R0, R4, RZ", "FADD"),  # +0 turns -0 into +0: arithmetic
        ("ATOMG.E.ADD.F32.FTZ.RN.STRONG.GPU PT, R2, desc[UR4][R2.64], R5", "ATOMG.ADD.F32.FTZ.RN"),
        ("RED.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64], R5", "RED.ADD.F32.FTZ.RN"),
        ("SHFL.BFLY PT, R5, R4, 0x10, 0x1f", "SHFL.BFLY"),
        ("BAR.SYNC.DEFER_BLOCKING 0x0", "BAR.SYNC"),
        ("IMAD.MOV.U32 R3, RZ, RZ, RZ", "IMAD.MOV"),
        ("LDG.E.64.CONSTANT R4, desc[UR4][R2.64]", "LDG"),
    ],
)
def test_names_that_instructions_are_counted_under(instruction: str, name: str) -> None:
    assert opcode_name(instruction) == name


# --- Deltas --------------------------------------------------------------------------------------


def counted(**sass: int) -> Code:
    return Code("p", "s", "c", (FunctionCounts("sum", (), tuple(sorted(sass.items()))),))


def test_deltas_show_numerics_first_and_only_what_differs() -> None:
    (delta,) = code_delta(counted(MOV=3, FADD=9, FFMA=1, IADD3=2), counted(MOV=4, FADD=10, FMUL=1, IADD3=2))
    assert delta.sass == (("FFMA", 1, 0), ("FMUL", 0, 1), ("FADD", 9, 10), ("MOV", 3, 4))
    assert all_numerics(delta) == delta.sass[:3]
    assert code_delta(counted(FADD=1), counted(FADD=1)) == ()


def test_counts_that_nobody_could_take_are_not_compared() -> None:
    assert code_delta(counted(FADD=1), Code("p", None, None)) == ()


@pytest.mark.parametrize(
    ("rows", "undone"),
    [
        ((("FFMA", 4, 0), ("FMUL", 0, 4), ("FADD", 13, 17)), 4),
        ((("FFMA", 0, 1), ("FMUL", 1, 0), ("FADD", 2, 1)), -1),
        ((("FFMA.FTZ", 1, 0), ("FMUL.FTZ", 0, 1), ("FADD.FTZ", 0, 1)), 1),
        ((("DFMA", 2, 0), ("DMUL", 0, 2), ("DADD", 0, 2), ("FFMA", 1, 0), ("FMUL", 0, 1), ("FADD", 0, 1)), 3),
        ((("FFMA", 1, 0), ("FMUL", 0, 1)), None),
        ((("MOV", 1, 2),), None),
    ],
)
def test_contractions(rows: tuple[tuple[str, int, int], ...], undone: int | None) -> None:
    assert contractions_undone(CodeDelta("f", rows, ())) == undone


def test_a_delta_in_words() -> None:
    rows = (("FFMA", 4, 0), ("FMUL", 0, 4), ("FADD", 13, 17))
    assert delta_phrase(CodeDelta("f", rows, ())) == (
        "FFMA 4 → 0, FMUL 0 → 4, FADD 13 → 17: 4 multiply-adds came apart"
    )


# --- Real compilers ------------------------------------------------------------------------------

# Compiles [(name, architecture, options)] with one NVRTC, in a process of its own: two versions in one
# process would be the first one twice.
WORKER = """
import base64, ctypes, glob, json, sys
folder, source, jobs = json.loads(sys.stdin.read())
ctypes.CDLL(glob.glob(folder + "/libnvrtc-builtins.so*")[0], mode=ctypes.RTLD_GLOBAL)
lib = ctypes.CDLL(sorted(glob.glob(folder + "/libnvrtc.so.*"))[0])
def text(program, size, get):
    n = ctypes.c_size_t()
    getattr(lib, size)(program, ctypes.byref(n))
    buffer = ctypes.create_string_buffer(n.value)
    getattr(lib, get)(program, buffer)
    return buffer.raw
out = {}
for name, arch, options in jobs:
    program = ctypes.c_void_p()
    lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"k.cu", 0, None, None)
    args = [o.encode() for o in ["-arch=" + arch, *options]]
    rc = lib.nvrtcCompileProgram(program, len(args), (ctypes.c_char_p * len(args))(*args))
    if rc:
        sys.exit(text(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").decode())
    out[name] = [text(program, "nvrtcGetPTXSize", "nvrtcGetPTX")[:-1].decode(),
                 base64.b64encode(text(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")).decode()]
print(json.dumps(out))
"""

# Four kernels with what moves bits: contraction, shuffles, a table in constant memory, division and a
# function with a slow path, an atomic whose return value is unused.
KERNELS = """
__constant__ float table[4] = {1.5f, 2.5f, 3.5f, FOURTH};
extern "C" __global__ void rowDot(const float* x, const float* y, unsigned long long n, float* out)
{
    float sum = 0.0f;
    for (unsigned i = threadIdx.x; i < n; i += 32)
        sum += x[i] * y[i];
    for (int d = 16; d > 0; d >>= 1)
        sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (threadIdx.x == 0)
        out[0] = sum;
}
extern "C" __global__ void dot2(const float* x, float* out)
{
    unsigned i = threadIdx.x;
    out[i] = x[4 * i] * x[4 * i + 1] + x[4 * i + 2] * x[4 * i + 3];
}
extern "C" __global__ void atomicSum(const float* x, unsigned n, float* total)
{
    unsigned i = blockIdx.x * 256 + threadIdx.x;
    if (i < n)
        atomicAdd(total, x[i]);
}
extern "C" __global__ void lookUp(const float* x, float* out, int k)
{
    out[threadIdx.x] = table[k] * sinf(x[threadIdx.x]) / x[1];
}
"""
# Contraction changes one multiply-add of every element step; the optimiser unrolls four steps of the loop.
STEPS = """
extern "C" __global__ void partials(const float* x, unsigned n, float* out)
{
    float sum = 0.0f;
    #pragma unroll UNROLL
    for (unsigned i = 0; i < n; ++i)
        sum += x[i] * x[i] + 0.25f;
    out[0] = sum;
}
"""
ARCHS = ("sm_75", "sm_80", "sm_90")
NVIDIA = find_spec("nvidia")
assert NVIDIA is not None and NVIDIA.submodule_search_locations, "install reprodb[cpu]: NVRTC and nvdisasm"
SITE = Path(next(iter(NVIDIA.submodule_search_locations)))
NVRTC = {"12": SITE / "cuda_nvrtc" / "lib", "13": SITE / "cu13" / "lib"}
NVDISASM = SITE / "cu13" / "bin" / "nvdisasm"
Job = tuple[str, str, tuple[str, ...]]


@dataclass(frozen=True)
class Built:
    ptx: str
    cubin: bytes
    sass: str

    @property
    def code(self) -> Code:
        return code_of(self.ptx, self.sass)


def compile_all(version: str, source: str, jobs: list[Job], folder: Path) -> Iterator[tuple[str, Built]]:
    request = json.dumps([str(NVRTC[version]), source, jobs])
    done = subprocess.run(
        [sys.executable, "-c", WORKER], input=request, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for name, (ptx, cubin) in json.loads(done.stdout).items():
        path = folder / f"{version}.cubin"
        path.write_bytes(base64.b64decode(cubin))
        sass = subprocess.run([NVDISASM, path], capture_output=True, text=True, check=True).stdout
        yield name, Built(ptx, path.read_bytes(), sass)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Built]:
    """(NVRTC major, variant) → what it made of KERNELS; variants are `sm_90`, `sm_90 no-fmad` and so on."""
    four = ("-DFOURTH=4.5f",)
    jobs: list[Job] = [(arch, arch, four) for arch in ARCHS]
    jobs += [(f"{arch} no-fmad", arch, (*four, "-fmad=false")) for arch in ARCHS]
    jobs += [
        ("lines", "sm_90", (*four, "-lineinfo")),
        ("table", "sm_90", ("-DFOURTH=4.75f",)),
        ("fast", "sm_90", (*four, "-use_fast_math")),
    ]
    folder = tmp_path_factory.mktemp("codegen")
    return {
        (version, name): made
        for version in NVRTC
        for name, made in compile_all(version, KERNELS, jobs, folder)
    }


def functions(sass: str) -> dict[str, str]:
    blocks = ("\n" + normalise_sass(sass)).split("\n.text ")[1:]
    return {name: body.strip() for name, body in (block.split("\n", 1) for block in blocks)}


Builds = dict[tuple[str, str], Built]


@pytest.mark.parametrize("version", NVRTC)
def test_line_info_is_not_code(built: Builds, version: str) -> None:
    plain, lines = built[version, "sm_90"], built[version, "lines"]
    assert plain.cubin != lines.cubin
    assert plain.code == lines.code


@pytest.mark.parametrize("version", NVRTC)
def test_a_constant_that_changed_is_code_although_no_instruction_did(built: Builds, version: str) -> None:
    plain, table = built[version, "sm_90"].code, built[version, "table"].code
    assert plain.sass == table.sass
    assert plain.constants != table.constants
    assert plain.ptx != table.ptx


@pytest.mark.parametrize("name", ["rowDot", "dot2", "atomicSum"])
@pytest.mark.parametrize("arch", ARCHS)
def test_two_toolkits_whose_instructions_are_the_same(built: Builds, arch: str, name: str) -> None:
    """NVRTC 12.6 and 13.5: the files differ in every build, these instructions in none."""
    old, new = built["12", arch], built["13", arch]
    assert old.cubin != new.cubin
    assert functions(old.sass)[name] == functions(new.sass)[name]


@pytest.mark.parametrize("version", NVRTC)
@pytest.mark.parametrize("arch", ARCHS)
def test_contraction_off_takes_one_multiply_add_apart(built: Builds, version: str, arch: str) -> None:
    deltas = code_delta(built[version, arch].code, built[version, f"{arch} no-fmad"].code)
    found = {d.function: d for d in deltas if contractions_undone(d)}
    assert contractions_undone(found["dot2"]) == 1
    assert found["dot2"].sass[:3] == (("FFMA", 1, 0), ("FMUL", 1, 2), ("FADD", 0, 1))
    assert "atomicSum" not in found


@pytest.mark.parametrize("unroll", [1, 4])
def test_unrolled_copies_count_each(tmp_path: Path, unroll: int) -> None:
    """One FFMA fewer, one FMUL and one FADD more for each copy of the step, whatever the number of copies."""
    step = f"-DUNROLL={unroll}"
    jobs: list[Job] = [("on", "sm_90", (step,)), ("off", "sm_90", (step, "-fmad=false"))]
    made = dict(compile_all("13", STEPS, jobs, tmp_path))
    (delta,) = code_delta(made["on"].code, made["off"].code)
    copies = next(before for name, before, _ in delta.sass if name == "FFMA")
    assert copies >= unroll
    changes = {name: b - a for name, a, b in delta.sass}
    assert (changes["FFMA"], changes["FMUL"], changes["FADD"]) == (-copies, copies, copies)
    assert contractions_undone(delta) == copies


@pytest.mark.parametrize("version", NVRTC)
def test_zeroing_by_hfma2_is_no_arithmetic(built: Builds, version: str) -> None:
    text = built[version, "sm_90"].sass + built[version, "sm_80"].sass
    assert re.search(r"HFMA2\S* R\d+, -RZ, RZ, ", text)
    assert not any("HFMA2" in c for c in sass_counts(built[version, "sm_90"].sass).values())


@pytest.mark.parametrize("version", NVRTC)
def test_counts_name_what_a_reviewer_looks_for(built: Builds, version: str) -> None:
    plain, fast = built[version, "sm_90"].code, built[version, "fast"].code
    counts = {c.function: dict(c.sass) for c in plain.counts}
    assert counts["rowDot"]["SHFL.BFLY"] == 5
    assert any(name.startswith("RED") and "ADD.F32" in name for name in counts["atomicSum"])
    assert "fma.rn.f32" in dict(next(c for c in plain.counts if c.function == "dot2").ptx)
    gained = {
        name: b - a
        for d in code_delta(plain, fast)
        for name, a, b in d.sass
        if d.function == "lookUp" and name.startswith("MUFU")
    }
    assert gained["MUFU.SIN"] == 1


def test_normalising_real_code_is_idempotent(built: Builds) -> None:
    for made in built.values():
        ptx, sass = normalise_ptx(made.ptx), normalise_sass(made.sass)
        assert normalise_ptx(ptx) == ptx
        assert normalise_sass(sass) == sass
        assert not re.search(r"\.loc\b", ptx)
        assert "/*" not in sass


def test_unknown_code_is_none() -> None:
    assert code_of(None, None) == Code(None, None, None)
    assert code_of(PTX, None).sass is None
