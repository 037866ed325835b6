"""Manifests: what a right one becomes, and how a wrong one is refused with key, value and what is allowed."""

from __future__ import annotations

import struct
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprodb.domain import ArgKind, Determinism, Input, Kernel, Role, Suite
from reprodb.errors import Exit, UsageError
from reprodb.suite import load_suite, select_kernels, source_files
from reprodb.suite.expressions import ExpressionError, evaluate, names_in
from reprodb.suite.manifest import read_kernel

KERNEL = """\
[kernel]
name = "sum"
source = "sum.cu"
operation = "sum of x"
determinism = "run_to_run"
accumulator = "float32"
defines = { BLOCKS = 4, THREADS = 32 }
"""
BUFFER = """\
[[buffer]]
name = "partials"
dtype = "float32"
size = "BLOCKS"
role = "witness"
[[buffer]]
name = "total"
dtype = "float32"
size = 1
role = "result"
"""
STAGE = """\
[[stage]]
entry = "sum"
grid = "BLOCKS"
block = "THREADS"
args = ["x", "n", "partials", "total"]
"""
CASE = """\
[[case]]
input = "ramp1000"
n = 1000
reference = "sum"
rel_tol = 1e-5
"""
SOURCE = 'extern "C" __global__ void sum(const float* x) {}\n'


def _write(
    root: Path,
    *,
    kernel: str = KERNEL,
    buffer: str = BUFFER,
    stage: str = STAGE,
    case: str = CASE,
    folder: str = "sum",
    source: str = SOURCE,
) -> Path:
    home = root / folder
    home.mkdir(parents=True, exist_ok=True)
    (home / "kernel.toml").write_text(kernel + buffer + stage + case, encoding="utf-8")
    (home / "sum.cu").write_text(source, encoding="utf-8")
    return root


def _only(root: Path) -> Kernel:
    (kernel,) = load_suite(root).kernels
    return kernel


@contextmanager
def _refused(*said: str) -> Iterator[None]:
    """The body raises a UsageError (exit 2) that says all of these."""
    with pytest.raises(UsageError) as caught:
        yield
    assert caught.value.code is Exit.USAGE
    for words in said:
        assert words in str(caught.value), str(caught.value)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "mysuite"


# --- What a manifest becomes -------------------------------------------------------------------


def test_a_manifest_whole(root: Path) -> None:
    kernel = _only(_write(root))
    assert (kernel.name, kernel.source, kernel.manifest) == ("sum", "sum/sum.cu", "sum/kernel.toml")
    assert kernel.determinism is Determinism.RUN_TO_RUN
    assert kernel.defines == (("BLOCKS", "4"), ("THREADS", "32"))
    assert kernel.shape_defines == ("BLOCKS", "THREADS")
    (stage,) = kernel.stages
    assert (stage.entry, stage.grid, stage.block, stage.shared) == ("sum", (4, 1, 1), (32, 1, 1), 0)
    assert [(a.kind, a.name) for a in stage.args] == [
        (ArgKind.INPUT, "x"),
        (ArgKind.SIZE, "n"),
        (ArgKind.BUFFER, "partials"),
        (ArgKind.BUFFER, "total"),
    ]
    (case,) = kernel.cases
    assert (case.name, case.n, case.reference, case.rel_tol) == ("ramp1000-1000", 1000, "sum", 1e-5)
    assert case.inputs == (Input("x", "ramp1000", 1000),)
    assert [(b.name, b.shape, b.role, b.init) for b in case.buffers] == [
        ("partials", (4,), Role.WITNESS, "poison"),
        ("total", (1,), Role.RESULT, "poison"),
    ]


def test_suite_takes_its_folders_name(root: Path) -> None:
    suite = load_suite(_write(root))
    assert (suite.name, suite.root) == ("mysuite", root)


def test_suite_file_names_the_suite(root: Path) -> None:
    (_write(root) / "suite.toml").write_text('name = "nightly-sums"\n')
    assert load_suite(root).name == "nightly-sums"


def test_kernels_are_sorted_and_folders_without_a_manifest_left_out(root: Path) -> None:
    _write(root, folder="b", kernel=KERNEL.replace('"sum"', '"a"'))
    _write(root, folder="a", kernel=KERNEL.replace('"sum"', '"b"'))
    (root / "_lib").mkdir()
    assert [k.name for k in load_suite(root).kernels] == ["a", "b"]


def test_shapes_products_and_three_dimensions(root: Path) -> None:
    stage = (
        STAGE.replace('grid = "BLOCKS"', 'grid = ["BLOCKS * 2", 3, "BLOCKS + 1"]').replace(
            '"THREADS"', '["THREADS", 2]'
        )
        + 'shared = "THREADS * 4"\n'
    )
    (built,) = _only(_write(root, stage=stage)).stages
    assert (built.grid, built.block, built.shared) == ((8, 3, 5), (32, 2, 1), 128)


def test_buffers_follow_the_cases_n(root: Path) -> None:
    buffer = BUFFER.replace("size = 1", 'shape = ["n", "BLOCKS"]')
    case = '[[case]]\ninput = "ones"\nn = 10\n[[case]]\ninput = "ones"\nn = 0\n'
    kernel = _only(_write(root, buffer=buffer, case=case))
    assert [c.buffers[1].shape for c in kernel.cases] == [(10, 4), (0, 4)]
    assert [c.name for c in kernel.cases] == ["ones-10", "ones-0"]


def test_shape_defines_are_those_that_shapes_use_and_those_added(root: Path) -> None:
    kernel = KERNEL.replace("THREADS = 32", "THREADS = 32, UNROLL = 4, CHUNK = 8, T = 'float'")
    assert _only(_write(root, kernel=kernel)).shape_defines == ("BLOCKS", "THREADS")
    added = kernel + 'shape_defines = ["CHUNK"]\n'
    assert _only(_write(root, kernel=added)).shape_defines == ("BLOCKS", "CHUNK", "THREADS")


def test_defines_are_text_for_the_compiler(root: Path) -> None:
    kernel = KERNEL.replace("THREADS = 32", "THREADS = 32, T = 'unsigned int', S = 0.5, M = -3")
    assert dict(_only(_write(root, kernel=kernel)).defines) == {
        "BLOCKS": "4",
        "M": "-3",
        "S": "0.5",
        "T": "unsigned int",
        "THREADS": "32",
    }


@pytest.mark.parametrize(
    ("scalar", "dtype", "value"),
    [
        ('{ value = 1.5, dtype = "float32" }', "float32", struct.pack("<f", 1.5)),
        ('{ value = 0.1, dtype = "float64", name = "s" }', "float64", struct.pack("<d", 0.1)),
        ('{ value = -0.0, dtype = "float32" }', "float32", bytes.fromhex("00000080")),
        ('{ value = -2, dtype = "int16" }', "int16", struct.pack("<h", -2)),
        ('{ value = 18446744073709551615, dtype = "uint64" }', "uint64", b"\xff" * 8),
        ('{ value = 1, dtype = "bfloat16" }', "bfloat16", bytes.fromhex("803f")),
        ('{ bits = 0x7e01, dtype = "float16" }', "float16", bytes.fromhex("017e")),
    ],
)
def test_scalars_are_bytes(root: Path, scalar: str, dtype: str, value: bytes) -> None:
    stage = STAGE.replace('"n"', f'"n", {scalar}')
    arg = _only(_write(root, stage=stage)).stages[0].args[2]
    assert (arg.kind, arg.dtype, arg.value) == (ArgKind.SCALAR, dtype, value)
    assert arg.name == ("s" if "name" in scalar else "arg3")


def test_named_inputs_with_their_own_sizes_and_types(root: Path) -> None:
    stage = STAGE.replace('"x", "n"', '"a", "b", "n"')
    case = """\
[[case]]
n = 64
[case.inputs]
a = "ones"
b = { pattern = "integers", seed = 3, n = 8, dtype = "int32" }
"""
    (case_,) = _only(_write(root, stage=stage, case=case)).cases
    assert case_.inputs == (
        Input("a", "ones", 64),
        Input("b", "integers", 8, "int32", (("high", 3), ("low", 0), ("seed", 3))),
    )
    assert case_.name == "ones_integers-seed3-int32-8-64"


def test_a_case_is_named_after_what_differs_from_defaults(root: Path) -> None:
    case = "".join(
        f"[[case]]\ninput = {{ pattern = 'normal', seed = {seed} }}\nn = 4\n" for seed in (0, 1, 2)
    )
    names = [c.name for c in _only(_write(root, case=case)).cases]
    assert names == ["normal-4", "normal-seed1-4", "normal-seed2-4"]


def test_struct_buffers(root: Path) -> None:
    fields = """\
dtype = "struct"
itemsize = 8
fields = [{ name = "tag", dtype = "int8", offset = 0 }, { name = "value", dtype = "float32", offset = 4 }]
"""
    buffer = BUFFER.replace('dtype = "float32"\nsize = 1\n', fields + "size = 5\n")
    total = _only(_write(root, buffer=buffer, case=CASE.partition("reference")[0])).cases[0].buffers[1]
    assert (total.nbytes, total.element_bytes) == (40, 8)
    assert total.pack(bytes(range(16))) == bytes([0, 4, 5, 6, 7, 8, 12, 13, 14, 15])


def test_everything_optional(root: Path) -> None:
    kernel = KERNEL + 'order = "halving tree"\ntags = ["sum", "tree"]\nbatch_invariant = true\n'
    buffer = BUFFER.replace('role = "witness"', 'role = "witness"\ndeterminism = "gpu_to_gpu"')
    buffer = buffer.replace('role = "result"', 'role = "result"\ninit = "copy:x"')
    case = CASE + 'name = "first"\nexpected = { total = "0X3F800000" }\n'.replace("0X", "0x")
    built = _only(_write(root, kernel=kernel, buffer=buffer, case=case))
    assert (built.order, built.tags, built.batch_invariant) == ("halving tree", ("sum", "tree"), True)
    (case_,) = built.cases
    assert (case_.name, case_.expected) == ("first", (("total", "0x3f800000"),))
    assert case_.buffers[0].determinism is Determinism.GPU_TO_GPU
    assert case_.buffers[1].init == "copy:x"


def test_a_block_that_cuda_refuses_can_be_written_down(root: Path) -> None:
    kernel = KERNEL.replace("THREADS = 32", "THREADS = 1025")
    assert _only(_write(root, kernel=kernel)).stages[0].block == (1025, 1, 1)


@pytest.mark.parametrize("n", [0, 1, 2**31, 2**40])
def test_n_from_nothing_to_very_many(root: Path, n: int) -> None:
    case = f'[[case]]\ninput = {{ pattern = "ones", dtype = "int8" }}\nn = {n}\n'
    assert _only(_write(root, case=case)).cases[0].n == n


# --- What is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "sum"\n', "", ["[kernel]", "missing key 'name'"]),
        (
            'operation = "sum of x"',
            'operatoin = "sum"',
            ["unknown key 'operatoin'", "did you mean 'operation'?"],
        ),
        ('name = "sum"', 'name = "../sum"', ["name = '../sum'", "letters, digits"]),
        ('name = "sum"', 'name = "-x"', ["name = '-x'"]),
        ('name = "sum"', 'name = ""', ["name = ''"]),
        ('name = "sum"', "name = 3", ["name = 3"]),
        (
            "run_to_run",
            "run_to_rum",
            ["determinism = 'run_to_rum'", "gpu_to_gpu", "did you mean 'run_to_run'?"],
        ),
        ('accumulator = "float32"', 'accumulator = "float23"', ["float23", "did you mean 'float32'?"]),
        ('source = "sum.cu"', 'source = "sun.cu"', ["source = 'sun.cu'", "existing file"]),
        ('source = "sum.cu"', 'source = "../../out.cu"', ["source = '../../out.cu'", "a file under"]),
        ('source = "sum.cu"', 'source = "/etc/passwd"', ["source = '/etc/passwd'", "a file under"]),
        ('source = "sum.cu"', 'source = "."', ["source = '.'", "existing file"]),
        ("BLOCKS = 4", "BLOCKS = true", ["define BLOCKS = True", "1 and 0"]),
        ("BLOCKS = 4", "BLOCKS = [1]", ["define BLOCKS = [1]"]),
        ("BLOCKS = 4", 'BLOCKS = 4, "A B" = 1', ["define 'A B'", "C identifier"]),
        ("BLOCKS = 4", "BLOCKS = 4, n = 1", ["define 'n'"]),
        ("BLOCKS = 4", "BLOCKS = 4, __CUDA_ARCH__ = 1", ["define '__CUDA_ARCH__'"]),
        ("BLOCKS = 4", 'BLOCKS = 4, T = "a\\nb"', ["define T", "one line"]),
        ("defines = {", 'shape_defines = ["BLOCK"]\ndefines = {', ["'BLOCK'", "did you mean 'BLOCKS'?"]),
        ("defines = {", "batch_invariant = 1\ndefines = {", ["batch_invariant = 1", "true or false"]),
        ("defines = {", 'tags = "sum"\ndefines = {', ["tags = 'sum'", "list of strings"]),
        ("defines = {", 'order = "a\\u001b[31m"\ndefines = {', ["order = ", "one line"]),
        ("defines = {", "sparkle = 1\ndefines = {", ["unknown key 'sparkle' = 1"]),
    ],
)
def test_kernel_tables(root: Path, old: str, new: str, said: list[str]) -> None:
    assert old in KERNEL
    with _refused("sum/kernel.toml: [kernel]", *said):
        load_suite(_write(root, kernel=KERNEL.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('dtype = "float32"\nsize = 1', 'dtype = "flaot32"\nsize = 1', ["dtype = 'flaot32'", "'float32'?"]),
        ('role = "result"', 'role = "results"', ["role = 'results'", "did you mean 'result'?"]),
        ('role = "result"', 'role = "scratch"', ["no buffer has role = 'result'"]),
        ('name = "total"', 'name = "to tal"', ["name = 'to tal'", "C identifier"]),
        ('name = "total"', 'name = "partials"', ["name = 'partials' is also another buffer"]),
        ('name = "total"', 'name = "x"', ["name = 'x' is also an input"]),
        ('name = "total"', 'name = "n"', ["name = 'n' is also the size"]),
        ("size = 1", "", ["needs one of size and shape"]),
        ("size = 1", "size = 1\nshape = [1]", ["needs one of size and shape"]),
        ("size = 1", "size = -1", ["[-1]", "0 or more"]),
        ("size = 1", "size = 1.0", ["size = 1.0", "whole number"]),
        ("size = 1", "size = true", ["size = True"]),
        ("size = 1", 'size = "BLOCK"', ["size = 'BLOCK'", "no define is called 'BLOCK'"]),
        ("size = 1", 'size = "__import__(1)"', ["size = ", "no define is called '__import__'"]),
        ("size = 1", 'size = "n - 1"', ["unexpected '-'"]),
        ("size = 1", "shape = []", ["shape = []"]),
        ("size = 1", "shape = [1, 1, 1, 1, 1]", ["shape = [1, 1, 1, 1, 1]", "one to four"]),
        ("size = 1", "size = 1\ninit = 'ones'", ["init = 'ones'", "poison, zero or copy:INPUT"]),
        ("size = 1", "size = 1\ninit = 'copy:y'", ["no input is called 'y'"]),
        ("size = 1", "size = 1\ndeterminism = 'always'", ["determinism = 'always'"]),
        ("size = 1", "size = 1\nitemsize = 4", ["fields of dtype 'float32'"]),
        ('dtype = "float32"\nsize = 1', 'dtype = "struct"\nsize = 1', ["missing key 'itemsize'"]),
        (
            'dtype = "float32"\nsize = 1',
            'dtype = "struct"\nsize = 1\nitemsize = 8\n'
            'fields = [{name = "a", dtype = "float64", offset = 4}]',
            ["offset = 4", "0 to 0"],
        ),
        (
            'dtype = "float32"\nsize = 1',
            'dtype = "struct"\nsize = 1\nitemsize = 8\nfields = [{name = "a", dtype = "int8", offset = 0},'
            ' {name = "b", dtype = "int32", offset = 0}]',
            ["field 2", "offset = 0", "1 to 4"],
        ),
        ("size = 1", f"size = {2**42}", ["asks for", "at most"]),
    ],
)
def test_buffer_tables(root: Path, old: str, new: str, said: list[str]) -> None:
    assert old in BUFFER
    case = CASE.partition("reference")[0]
    with _refused("sum/kernel.toml", *said):
        load_suite(_write(root, buffer=BUFFER.replace(old, new), case=case))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('grid = "BLOCKS"', "grid = 0", ["grid = 0", "1 to"]),
        ('grid = "BLOCKS"', "grid = -4", ["grid = -4", "1 to"]),
        ('grid = "BLOCKS"', 'grid = "BLOCKS * 0"', ["grid = 'BLOCKS * 0'", "it is 0"]),
        ('grid = "BLOCKS"', 'grid = "n"', ["grid = 'n'", "does not follow n"]),
        ('grid = "BLOCKS"', 'grid = "BLOCK"', ["no define is called 'BLOCK'", "did you mean 'BLOCKS'?"]),
        ('grid = "BLOCKS"', "grid = [1, 2, 3, 4]", ["grid = [1, 2, 3, 4]", "one to three"]),
        ('grid = "BLOCKS"', "grid = [1, 70000]", ["grid = [1, 70000]", "65535"]),
        ('grid = "BLOCKS"', f"grid = {2**31}", [f"grid = {2**31}"]),
        ('grid = "BLOCKS"', "grid = 1.5", ["grid = 1.5"]),
        ('grid = "BLOCKS"', "grid = []", ["grid = []"]),
        ('grid = "BLOCKS"\n', "", ["missing key 'grid'"]),
        ('block = "THREADS"', "block = 0", ["block = 0"]),
        ('block = "THREADS"', "block = [1024, 1024]", ["block = [1024, 1024]", "CUDA launches 1024"]),
        ('entry = "sum"', 'entry = "s-um"', ["entry = 's-um'", "C identifier"]),
        ('entry = "sum"', "", ["missing key 'entry'"]),
        ('"partials"', '"partial"', ["unknown argument 'partial'", "did you mean 'partials'?"]),
        ('"x"', '"y"', ["unknown argument 'y'", "x, n, partials, total"]),
        ('"x"', "7", ["unknown argument 7"]),
        ('"x"', '{ value = nan, dtype = "float16" }', ["value = nan", "by its bits"]),
        ('"x"', '{ dtype = "float16" }', ["exactly one of value and bits"]),
        ('"x"', "{ value = 1 }", ["missing key 'dtype'"]),
        ('"x"', '{ value = "1", dtype = "int32" }', ["value = '1'"]),
        ('"x"', '{ value = 300, dtype = "uint8" }', ["value = 300 is no uint8", "0 to 255"]),
        ('"x"', '{ value = 1, dtype = "int31" }', ["dtype = 'int31'", "did you mean 'int32'?"]),
        ('args = ["x"', 'shared = -1\nargs = ["x"', ["shared = -1"]),
        ('args = ["x"', 'shraed = 1\nargs = ["x"', ["unknown key 'shraed'", "did you mean 'shared'?"]),
        ('["x", "n", "partials", "total"]', '"x"', ["args = 'x'", "a list"]),
    ],
)
def test_stage_tables(root: Path, old: str, new: str, said: list[str]) -> None:
    assert old in STAGE
    with _refused("sum/kernel.toml: [[stage]] 1", *said):
        load_suite(_write(root, stage=STAGE.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('input = "ramp1000"', 'input = "ramp100"', ["input x", "'ramp100'", "did you mean 'ramp1000'?"]),
        ('input = "ramp1000"', "", ["needs one of input and inputs"]),
        ('input = "ramp1000"', 'input = "ones"\ninputs = { x = "ones" }', ["needs one of input and inputs"]),
        ('input = "ramp1000"', "inputs = {}", ["inputs = {}", "1 to 64"]),
        ('input = "ramp1000"', 'inputs = { n = "ones" }', ["input 'n'"]),
        ('input = "ramp1000"', 'inputs = { "a b" = "ones" }', ["input 'a b'", "C identifier"]),
        ('input = "ramp1000"', "input = 3", ["input x: 3", "a pattern's name"]),
        ('input = "ramp1000"', "input = { seed = 3 }", ["a pattern's name"]),
        ('input = "ramp1000"', "input = { pattern = 'normal', sed = 3 }", ["'sed'", "did you mean 'seed'?"]),
        ('input = "ramp1000"', "input = { pattern = 'normal', dtype = 'f32' }", ["dtype = 'f32'", "float32"]),
        ('input = "ramp1000"', "input = { pattern = 'normal', n = -1 }", ["n = -1"]),
        ("n = 1000", "n = -1", ["n = -1", "0 to"]),
        ("n = 1000", "n = 1e3", ["n = 1000.0"]),
        ("n = 1000", "n = true", ["n = True"]),
        ("n = 1000", f"n = {2**41}", [f"n = {2**41}"]),
        ("n = 1000", f"n = {2**40}", [f"n = {2**40}", "asks for"]),
        ("n = 1000", "", ["missing key 'n'"]),
        ('reference = "sum"', 'reference = "sums"', ["reference = 'sums'", "did you mean 'sum'?"]),
        ('reference = "sum"', 'reference = "dot"', ["reference = 'dot'", "2 inputs"]),
        ("rel_tol = 1e-5", "", ["missing key 'rel_tol'", "with every reference"]),
        ('reference = "sum"', "", ["rel_tol = 1e-05", "name the reference"]),
        ("rel_tol = 1e-5", "rel_tol = -1", ["rel_tol = -1"]),
        ("rel_tol = 1e-5", "rel_tol = nan", ["rel_tol = nan"]),
        ("rel_tol = 1e-5", "rel_tol = inf", ["rel_tol = inf"]),
        (
            "rel_tol = 1e-5",
            "rel_tol = 1e-5\nexpected = { tota = '0x0' }",
            ["'tota'", "did you mean 'total'?"],
        ),
        ("rel_tol = 1e-5", "rel_tol = 1e-5\nexpected = { total = '1.0' }", ["total = '1.0'", "0x and 8"]),
        ("rel_tol = 1e-5", "rel_tol = 1e-5\nexpected = { total = '0x3f8' }", ["0x and 8"]),
        ("rel_tol = 1e-5", "rel_tol = 1e-5\nexpected = { total = '0x-0000001' }", ["0x and 8"]),
        ("rel_tol = 1e-5", "rel_tol = 1e-5\nexpected = { total = 1 }", ["total = 1", "0x and 8"]),
        ("rel_tol = 1e-5", "rel_tol = 1e-5\nexpected = { partials = '0x0' }", ["one element"]),
        ("rel_tol = 1e-5", "rel_tol = 1e-5\nname = 'a/b'", ["name = 'a/b'"]),
        ("rel_tol = 1e-5", "rel_tol = 1e-5\nnmae = 'a'", ["unknown key 'nmae'", "did you mean 'name'?"]),
    ],
)
def test_case_tables(root: Path, old: str, new: str, said: list[str]) -> None:
    assert old in CASE
    with _refused("sum/kernel.toml: [[case]] 1", *said):
        load_suite(_write(root, case=CASE.replace(old, new)))


def test_two_cases_of_one_name(root: Path) -> None:
    with _refused("[[case]] 2", "second case 'ramp1000-1000'", "give the case a name"):
        load_suite(_write(root, case=CASE + CASE))


def test_cases_name_the_same_inputs(root: Path) -> None:
    case = CASE + "[[case]]\nn = 4\ninputs = { y = 'ones' }\n"
    with _refused("[[case]] 2", "['y']", "['x']"):
        load_suite(_write(root, case=case))


def test_a_default_name_that_grows_too_long(root: Path) -> None:
    inputs = ", ".join(f"i{k} = {{ pattern = 'normal', seed = {10**18 + k} }}" for k in range(5))
    case = f"[[case]]\nn = 4\ninputs = {{ {inputs} }}\n"
    with _refused("at most 100 characters", "give the case a name"):
        load_suite(_write(root, stage=STAGE.replace('"x"', '"i0"'), case=case))


@pytest.mark.parametrize("part", ["kernel", "buffer", "stage", "case"])
def test_a_missing_table(root: Path, part: str) -> None:
    with _refused("sum/kernel.toml", f"missing key '{part}'"):
        load_suite(_write(root, **{part: ""}))


def test_tables_of_the_wrong_kind(root: Path) -> None:
    with _refused("one or more [[stage]] tables"):
        load_suite(_write(root, stage="", kernel="stage = 3\n" + KERNEL))
    with _refused("kernel = 3", "a table"):
        load_suite(_write(root, kernel="kernel = 3\n"))


def test_all_problems_of_a_suite_in_one_error(root: Path) -> None:
    _write(root, stage=STAGE.replace('"BLOCKS"', "0"), case=CASE.replace("n = 1000", "n = -1"))
    _write(root, folder="other", kernel=KERNEL.replace("run_to_run", "maybe"), buffer="")
    with _refused(
        "has 4 problems",
        "sum/kernel.toml: [[stage]] 1: grid = 0",
        "sum/kernel.toml: [[case]] 1: ",
        "other/kernel.toml: [kernel]: determinism = 'maybe'",
        "other/kernel.toml: missing key 'buffer'",
    ):
        load_suite(root)


def test_two_kernels_of_one_name(root: Path) -> None:
    _write(_write(root), folder="again")
    with _refused("name = 'sum' is also the name of again/kernel.toml"):
        load_suite(root)


def test_no_folder_no_manifest_no_name(root: Path, tmp_path: Path) -> None:
    with _refused("is no folder", "leave --suite out"):
        load_suite(root)
    root.mkdir()
    with _refused("no */kernel.toml in this folder"):
        load_suite(root)
    _write(root)
    with _refused("it is a kernel's own", f"name the folder above: {root.resolve()}"):
        load_suite(root / "sum")
    spaced = _write(tmp_path / "my suite")
    with _refused("'my suite' is no suite name", "suite.toml"):
        load_suite(spaced)
    (spaced / "suite.toml").write_text('name = "spaced"\n')
    assert load_suite(spaced).name == "spaced"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('title = "x"', ["unknown key 'title'"]),
        ("name = 3", ["name = 3"]),
        ('name = "a b"', ["name = 'a b'"]),
        ("", ["missing key 'name'"]),
        ("name = ", ["is not TOML"]),
    ],
)
def test_suite_files(root: Path, text: str, said: list[str]) -> None:
    (_write(root) / "suite.toml").write_text(text)
    with _refused("suite.toml", *said):
        load_suite(root)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"[kernel\n", ["is not TOML", "line 1"]),
        (b"a = 1\na = 2\n", ["is not TOML"]),
        (b"a = " + b"9" * 5000, ["thousands of digits"]),
        (b"kernel = 0x" + b"f" * 5000, ["kernel = a number of thousands of digits"]),
        (b"\xff\xfe", ["is not UTF-8"]),
        (b"#" * (1 << 20) + b"\n", ["too large", "1048576 bytes"]),
        (b"a = " + b"[" * 100_000, ["nested too deeply"]),
    ],
)
def test_files_that_are_no_manifests(root: Path, data: bytes, said: list[str]) -> None:
    (_write(root) / "sum" / "kernel.toml").write_bytes(data)
    with _refused("sum/kernel.toml", *said):
        load_suite(root)


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from([1 << 63, 1 << 64, -(1 << 64), 1 << 20_000, 1e300]),
    st.sampled_from([[], {}, [1], [[]], [{}], {"n": 1}, {"pattern": "ones"}, {"x": {}}, "n", "x", "copy:x"]),
)


@settings(deadline=None)
@given(st.data())
def test_any_value_anywhere_is_taken_or_refused_and_never_crashes(
    small_root: Path, data: st.DataObject
) -> None:
    manifest = tomllib.loads(KERNEL + BUFFER + STAGE + CASE)
    place: Any = manifest
    while True:
        key = data.draw(st.sampled_from(list(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(ANYTHING)
    kernel, problems = read_kernel(small_root, "sum/kernel.toml", manifest)
    assert (kernel is None) == bool(problems)
    assert all(str(p).startswith("sum/kernel.toml") and str(p).isprintable() for p in problems)


@pytest.fixture(scope="module")
def small_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write(tmp_path_factory.mktemp("small"))


# --- Sizes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [("7", 7), ("BLOCKS", 4), ("BLOCKS * 2", 8), ("2*BLOCKS+1", 9), ("2 * (BLOCKS + 1)", 10), (" n ", 100)],
)
def test_sizes(text: str, value: int) -> None:
    assert evaluate(text, {"BLOCKS": 4, "n": 100}) == value


@pytest.mark.parametrize(
    "text", ["", " ", "BLOCKS BLOCKS", "1 +", "* 2", "(1", "1)", "2 ** 3", "a.b", "f(1)", "1e3", "0x10", "-1",
             "BLOCKS; 1", "٣", "9" * 201]
)  # fmt: skip
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(text, {"BLOCKS": 4})


@given(st.recursive(
    st.integers(0, 99).map(str) | st.sampled_from(["A", "B"]),
    lambda inner: st.tuples(inner, st.sampled_from([" + ", "*"]), inner).map(lambda t: f"({''.join(t)})"),
    max_leaves=8,
))  # fmt: skip
def test_sizes_mean_what_python_would_say(text: str) -> None:
    expected = eval(text, {"__builtins__": {}}, {"A": 3, "B": 5})  # noqa: S307 -- made by the strategy above
    assert evaluate(text, {"A": 3, "B": 5}) == expected


def test_names_in_sizes() -> None:
    assert names_in("A * (B + A) + 3") == ("A", "B")
    assert names_in(3) == ()


# --- Sources -----------------------------------------------------------------------------------


def _paths(root: Path) -> list[str]:
    suite = load_suite(root)
    return [f.path for f in source_files(suite, suite.kernels[0])]


def _library(root: Path, **files: str) -> None:
    (root / "_lib").mkdir(exist_ok=True)
    for name, text in files.items():
        (root / "_lib" / f"{name}.cuh").write_text(text)


def test_sources_first_and_then_includes_sorted(root: Path) -> None:
    _write(root, source='#include "../_lib/z.cuh"\n  #  include <cuda_fp16.h>\n#include "../_lib/b.cuh"\n')
    _library(root, z='#include "a.cuh"\n', a='#include "z.cuh"\n', b="// b\n", unused="// no\n")
    assert _paths(root) == ["sum/sum.cu", "_lib/a.cuh", "_lib/b.cuh", "_lib/z.cuh"]
    suite = load_suite(root)
    assert source_files(suite, suite.kernels[0])[2].text == "// b\n"


@pytest.mark.parametrize(
    "directive",
    [
        '#include "../_lib/a.cuh"',
        '\t# include\t"../_lib/a.cuh" // why',
        '#if 0\n#include "../_lib/a.cuh"\n#endif',
        '// seen here too:\n/*\n#include "../_lib/a.cuh"\n*/',
        '#include \\\n"../_lib/a.cuh"',
        '#inc\\\nlude "../_lib/a.cuh"',
        '#/**/include/**/"../_lib/a.cuh"',
        '/* note */ #include "../_lib/a.cuh"',
        '%:include "../_lib/a.cuh"',
        '#include "../_lib/../_lib/a.cuh"',
    ],
)
def test_every_way_to_write_an_include(root: Path, directive: str) -> None:
    _write(root, source=f"{directive}\n")
    _library(root, a="")
    assert "_lib/a.cuh" in _paths(root)


def test_a_quoted_header_of_the_toolkit_is_left_to_the_compiler(root: Path) -> None:
    _write(root, source='#include "cuda_fp16.h"\n')
    assert _paths(root) == ["sum/sum.cu"]


@pytest.mark.parametrize(
    ("directive", "said"),
    [
        ('#include "../../outside.cuh"', '"../../outside.cuh", which lies outside the suite'),
        ('#include "/etc/hostname"', '"/etc/hostname", which lies outside the suite'),
        ("#include </etc/hostname>", "</etc/hostname>, which lies outside the suite"),
        ("#include <../../../etc/hostname>", "which lies outside the suite"),
        ('#include "../_lib/absent.cuh"', '"../_lib/absent.cuh", which does not exist'),
        ("#define H </etc/hostname>\n#include H", "'H', which only the preprocessor could resolve"),
    ],
)
def test_includes_that_are_refused(root: Path, directive: str, said: str) -> None:
    (root.parent / "outside.cuh").write_text("// secret\n")
    with _refused("sum/sum.cu includes", said):
        load_suite(_write(root, source=f"{directive}\n"))


def test_links_that_leave_the_suite(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.cuh"
    outside.write_text("// secret\n")
    _write(root, source='#include "link.cuh"\n')
    (root / "sum" / "link.cuh").symlink_to(outside)
    with _refused('includes "link.cuh", which lies outside the suite'):
        load_suite(root)
    (root / "sum" / "sum.cu").unlink()
    (root / "sum" / "sum.cu").symlink_to(outside)
    with _refused("source = 'sum.cu'", "a file under"):
        load_suite(root)


def test_a_linked_kernel_folder_outside_the_suite(root: Path, tmp_path: Path) -> None:
    _write(tmp_path / "elsewhere", folder="sum")
    _write(root, folder="mine", kernel=KERNEL.replace('"sum"', '"mine"', 1))
    (root / "sum").symlink_to(tmp_path / "elsewhere" / "sum")
    with _refused("sum/kernel.toml", "is a link to a file outside the suite"):
        load_suite(root)


def test_links_inside_the_suite_and_a_linked_suite(root: Path, tmp_path: Path) -> None:
    _write(root, source='#include "link.cuh"\n')
    _library(root, a="// a\n")
    (root / "sum" / "link.cuh").symlink_to("../_lib/a.cuh")
    (tmp_path / "alias").symlink_to(root)
    assert _paths(tmp_path / "alias") == ["sum/sum.cu", "_lib/a.cuh"]


def test_loops_of_links_and_of_includes_end(root: Path) -> None:
    _write(root, source='#include "loop.cuh"\n')
    (root / "sum" / "loop.cuh").symlink_to("loop.cuh")
    with _refused("loop.cuh"):
        load_suite(root)
    (root / "sum" / "loop.cuh").unlink()
    (root / "sum" / "loop.cuh").write_text('#include "loop.cuh"\n#include "sum.cu"\n')
    assert _paths(root) == ["sum/sum.cu", "sum/loop.cuh"]


@pytest.mark.parametrize("data", [b"\xff\xfe\n", b"/" * ((4 << 20) + 1)], ids=["not text", "too large"])
def test_unreadable_sources(root: Path, data: bytes) -> None:
    (_write(root) / "sum" / "sum.cu").write_bytes(data)
    with _refused("sum/sum.cu is"):
        load_suite(root)


@pytest.mark.parametrize("name", ["a b.cu", "-flag.cu", ".hidden.cu", "a\nb.cu", "$(x).cu"])
def test_source_names_that_no_command_line_should_see(root: Path, name: str) -> None:
    _write(root)
    (root / "sum" / name).write_text(SOURCE)
    escaped = name.replace("\n", "\\n")
    with _refused("source = "):
        load_suite(_write(root, kernel=KERNEL.replace("sum.cu", escaped)))


def test_a_source_that_vanished_after_loading(root: Path) -> None:
    suite = load_suite(_write(root))
    (root / "sum" / "sum.cu").unlink()
    with _refused("sum/sum.cu cannot be read"):
        source_files(suite, suite.kernels[0])


def test_a_forged_source_path_is_refused(root: Path) -> None:
    suite = load_suite(_write(root))
    with _refused("lies outside the suite"):
        source_files(suite, replace(suite.kernels[0], source="../../etc/passwd"))


# --- Choosing kernels --------------------------------------------------------------------------


def _named(root: Path, *names: str) -> Suite:
    for name in names:
        _write(root, folder=name, kernel=KERNEL.replace('"sum"', f'"{name}"', 1))
    return load_suite(root)


def test_selecting_by_glob_keeps_the_suites_order(root: Path) -> None:
    suite = _named(root, "sum_a", "sum_b", "dot")
    assert select_kernels(suite, ()) == suite.kernels
    assert [k.name for k in select_kernels(suite, ["sum_b", "*"])] == ["dot", "sum_a", "sum_b"]
    assert [k.name for k in select_kernels(suite, ["sum_*"])] == ["sum_a", "sum_b"]


def test_selecting_by_tag(root: Path) -> None:
    suite = _named(root, "alpha", "beta")
    alpha, beta = (replace(k, tags=("quick", k.name)) for k in suite.kernels)
    suite = replace(suite, kernels=(alpha, replace(beta, tags=("full",))))

    def names(suite: Suite, globs: tuple[str, ...], tags: tuple[str, ...] = ()) -> list[str]:
        return [k.name for k in select_kernels(suite, globs, tags)]

    assert names(suite, ()) == ["alpha", "beta"]
    assert names(suite, (), ("quick",)) == ["alpha"]
    assert names(suite, (), ("full", "alpha")) == ["alpha", "beta"]
    assert names(suite, ("b*",), ("full",)) == ["beta"]
    chosen = replace(suite, default_tags=("full",))
    assert names(chosen, ()) == ["beta"]
    assert names(chosen, ("alpha",)) == ["alpha"]  # what is named runs, whatever is the default
    assert names(chosen, (), ("quick",)) == ["alpha"]
    with _refused("no kernel with the tag 'quik'", "did you mean 'quick'?", "alpha, full, quick"):
        select_kernels(suite, (), ("quik",))
    with _refused("no kernel is called a* and has the tag full"):
        select_kernels(suite, ("a*",), ("full",))


def test_default_tags_are_the_suite_files(root: Path) -> None:
    _write(root, kernel=KERNEL + 'tags = ["sum"]\n')
    (root / "suite.toml").write_text('name = "mine"\ndefault = ["sum"]\n', encoding="utf-8")
    suite = load_suite(root)
    assert (suite.name, suite.default_tags) == ("mine", ("sum",))
    (root / "suite.toml").write_text('name = "mine"\ndefault = ["sun"]\n', encoding="utf-8")
    with _refused("suite.toml: default = ['sun']", "sum"):
        load_suite(root)


def test_an_unknown_kernel_gets_the_nearest_name(root: Path) -> None:
    suite = _named(root, "sum_a", "dot")
    with _refused("no kernel 'sum_q'", "dot, sum_a", "did you mean 'sum_a'?"):
        select_kernels(suite, ["sum_a", "sum_q"])
    with _refused("no kernel 'max*'"):
        select_kernels(suite, ["max*"])
