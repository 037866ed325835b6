"""Kernels that are programs: commands built and run on the CPU, Python callables, and what is refused."""

from __future__ import annotations

import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reprodb import placeholders
from reprodb.domain import Artifact, CodeOrigin, Kernel, Lane, SourceFile, Status
from reprodb.errors import ExecutionError, UnsupportedError, UsageError
from reprodb.executors.arrays import Arrays
from reprodb.executors.callables import CallableExecutor
from reprodb.executors.commands import CommandExecutor
from reprodb.executors.programs import HostExecutor, executor_of
from reprodb.executors.task import Prepared, Task, perform
from reprodb.programs import COMMAND, own_toolchain, prepare
from reprodb.suite import bundled_suite, load_suite
from reprodb.toolchains.process import Finished
from tests.command import Said, reprodb, valid

SUITE = Path(__file__).parent / "suites" / "programs"
CLAIMS = {
    "lib_cub_reduce": "run_to_run",
    "lib_cub_reduce_free": "not_guaranteed",
    "lib_cub_reduce_portable": "gpu_to_gpu",
    "lib_cublas_sgemm": "run_to_run",
    "lib_cublas_sgemm_atomics": "run_to_run",
    "lib_cublas_sgemv": "run_to_run",
    "lib_cublas_sgemv_atomics": "run_to_run",
    "lib_cublas_ssymv": "run_to_run",
    "lib_cublas_ssymv_atomics": "not_guaranteed",
    "lib_cupy_scan": "not_guaranteed",
    "lib_cupy_sort": "gpu_to_gpu",
    "lib_cupy_sum": "not_guaranteed",
}

needs_cmake = pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")


def kernel_of(name: str) -> Kernel:
    found = next(k for k in load_suite(SUITE).kernels if k.name == name)
    return replace(found, cases=found.cases[:1])


def run(folder: Path, *args: object) -> Said:
    where = ("--db", folder / "reprodb.db", "--store", folder / "store")
    return reprodb("run", "--suite", SUITE, "--device", "cpu", "-n", 3, "--json", *where, *args)


# --- Words ----------------------------------------------------------------------------------------


def test_placeholders_are_words_and_never_a_shell() -> None:
    values: placeholders.Values = {"flags": ("-a", "-b c"), "out": "/o p", "input:x": "/in/x", "n": "3"}
    words = placeholders.filled(["{flags}", "-o{out}/s", "{input:x}", "$(id)", "{n};{n}"], values)
    assert words == ["-a", "-b c", "-o/o p/s", "/in/x", "$(id)", "3;3"]
    assert placeholders.used(["{input:x}{n}", "{n}", "{"]) == (("input", "x"), ("n", ""))


# --- Commands -------------------------------------------------------------------------------------


@pytest.fixture(name="night", scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if not shutil.which("cmake"):
        pytest.skip("cmake is not installed")
    said = run(tmp_path_factory.mktemp("programs"))
    assert said.code == 0, said.err
    return {f"{r['kernel']} {r['case']}": r for r in valid(said.json, "show")["results"]} | {
        "run": said.json["run"]
    }


def test_programs_on_the_cpu_have_a_lane_of_their_own(night: dict[str, Any]) -> None:
    """The callable on CuPy arrays is left out: it needs a GPU."""
    assert sorted(night) == [
        "cmake_sum few", "cmake_sum ramp1000-1003", "python_sum normal-seed68-float64-3", "run",
    ]  # fmt: skip
    assert (night["run"]["lane"], night["run"]["environment"]["device"]) == ("host", None)
    few = night["cmake_sum few"]
    assert (few["status"], few["first_bits"], few["distinct"]) == ("ok", "0x40800000", 1)  # 4.0
    assert (few["lane"], few["arch"], few["profile"], few["origin"]) == ("host", "host", "command", "program")
    assert few["code"] is None


def test_a_command_is_judged_like_any_kernel(night: dict[str, Any]) -> None:
    result = night["cmake_sum ramp1000-1003"]
    x = np.float32(1) + (np.arange(1003) % 1000).astype(np.float32) * np.float32(0.001)
    total = np.float32(0)
    for value in x:
        total = np.float32(total + value)
    assert result["first_bits"] == f"0x{total.view(np.uint32):08x}"
    assert (result["accuracy"], result["repetitions"]) == ("ok", 3)


def test_the_order_of_programs_is_measured(night: dict[str, Any]) -> None:
    assert night["cmake_sum few"]["fingerprint"]["tree"] == "(((0 1) 2) 3)"
    pairwise = night["python_sum normal-seed68-float64-3"]
    assert pairwise["fingerprint"]["tree"] == "(0 (1 2))"
    assert set(pairwise["outputs"]) == {"total", "halves"}


def test_a_python_script_sums_pairwise(night: dict[str, Any]) -> None:
    from reprodb.inputs import generate

    def pairwise(x: Any) -> Any:
        half = len(x) // 2
        return x[0] if len(x) == 1 else pairwise(x[:half]) + pairwise(x[half:])

    x = generate(kernel_of("python_sum").cases[0].inputs[0])
    expected = pairwise(x).view(np.uint64)
    assert night["python_sum normal-seed68-float64-3"]["first_bits"] == f"0x{expected:016x}"


@needs_cmake
def test_other_steps_move_the_order_between_nights(tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    shutil.copytree(SUITE / "cmake_sum", suite / "cmake_sum")
    where = ("--suite", suite, "--db", tmp_path / "db", "--store", tmp_path / "store", "--out", tmp_path)
    night = ("nightly", "--device", "cpu", "-n", 2, "--json", *where)
    assert reprodb(*night, folder=tmp_path).code == 0
    manifest = suite / "cmake_sum" / "kernel.toml"
    manifest.write_text(manifest.read_text().replace("STEP = 1", "STEP = 3"))
    said = reprodb(*night, folder=tmp_path)
    rows = {row["case"]: row for row in said.json["comparisons"]}
    assert rows["ramp1000-1003"]["verdict"] == "changed"
    assert rows["few"]["verdict"] == "same"  # sums of ones are exact
    layers = {layer["name"]: layer for layer in rows["few"]["attribution"]["effects"]}
    assert layers["order fingerprint"]["state"] == "differs"
    assert layers["normalised SASS and constants"]["state"] == "unknown"
    assert "STEP 1 → 3" in rows["few"]["attribution"]["sentence"]
    told = reprodb("diff", 1, 2, "--db", tmp_path / "db").out
    assert "The order differs and no bit moved (5 of 6 pairs meet elsewhere): cmake_sum few" in told

    # What makes a kernel again in other ways says that it cannot make this one.
    for command in (("explain", 1, 2), ("trace", 1, 2, "cmake_sum")):
        said = reprodb(*command, "--db", tmp_path / "db", folder=tmp_path)
        assert (said.code, "cmake_sum is a program of its own" in said.err) == (2, True)
    card = reprodb("claim", 2, "cmake_sum", "--case", "ramp1000-1003", "--db", tmp_path / "db")
    assert "the host lane claims no bound" in card.out and "a program on" in card.out
    assert "this binary on this kind of machine: held" in card.out
    assert "shape        the program's own" in card.out and "contraction" not in card.out


def built(tmp_path: Path, **changes: Any) -> tuple[Artifact, Prepared]:
    suite = load_suite(SUITE)
    kernel = kernel_of("cmake_sum")
    assert kernel.program is not None
    kernel = replace(kernel, program=replace(kernel.program, **changes))
    return prepare(suite, kernel, COMMAND, own_toolchain(COMMAND), "host", tmp_path)


def test_a_build_that_fails_is_told_with_its_log(tmp_path: Path) -> None:
    script = "import sys; print('no such thing'); sys.exit(3)"
    artifact, _ = built(tmp_path, build=(("{python}", "-c", script),))
    assert artifact.build.status is Status.BUILD_FAILED
    assert "exit code 3" in artifact.build.log and "no such thing" in artifact.build.log


def test_a_build_is_made_once_and_follows_its_command(tmp_path: Path) -> None:
    count = "import pathlib, sys; p = pathlib.Path(sys.argv[1]); p.write_text('x')"
    first, where = built(tmp_path, build=(("{python}", "-c", count, "{out}/made"),))
    made = Path(where.place) / "out" / "made"
    assert first.build.status is Status.OK
    made.write_text("still there")
    again, there = built(tmp_path, build=(("{python}", "-c", count, "{out}/made"),))
    assert (again.build.key, there.place, made.read_text()) == (first.build.key, where.place, "still there")
    other, _ = built(tmp_path, build=(("{python}", "-c", count, "{out}/made2"),))
    assert other.build.key != first.build.key


def test_builds_and_runs_see_no_more_of_the_environment_than_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    show = "import os, sys; sys.exit(str(sorted(os.environ)))"
    artifact, _ = built(tmp_path, build=(("{python}", "-c", show),))
    assert "SECRET_TOKEN" not in artifact.build.log and "'PATH'" in artifact.build.log
    executor = CommandExecutor(HostExecutor(), Prepared((), str(tmp_path)))
    environment = executor._environment(tmp_path)
    assert "SECRET_TOKEN" not in environment and environment["HOME"] == str(tmp_path)


def commanded(script: str, **changes: Any) -> list[bytes]:
    """The bits of a Python script as a command that writes `total`."""
    kernel = kernel_of("cmake_sum")
    assert kernel.program is not None
    run = ("{python}", "-c", script, "{output:total}", "{input:x}")
    kernel = replace(kernel, program=replace(kernel.program, build=(), run=run, **changes))
    prepared = Prepared((SourceFile("cmake_sum/sum.c", ""),), "/nowhere")
    executor = CommandExecutor(HostExecutor(), prepared)
    samples = executor.execute(Artifact(artifact_build()), kernel, kernel.cases[0], 2)
    assert samples.origin is CodeOrigin.PROGRAM
    return [samples.outputs[0].patterns[i] for i in samples.outputs[0].sequence]


def artifact_build() -> Any:
    from tests.builders import make_build

    return make_build()


def test_what_a_command_leaves_behind_is_checked() -> None:
    write = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_bytes({})"
    assert commanded(write.format("b'abcd'")) == [b"abcd", b"abcd"]
    with pytest.raises(ExecutionError, match=r"total\.bin has 3 bytes"):
        commanded(write.format("b'abc'"))
    with pytest.raises(ExecutionError, match=r"wrote no total\.bin"):
        commanded("pass")
    with pytest.raises(ExecutionError, match="exit code 7") as failed:
        commanded("import sys; print('why'); sys.exit(7)")
    assert "why" in failed.value.detail
    with pytest.raises(ExecutionError, match="killed by SIGKILL"):
        commanded("import os; os.kill(os.getpid(), 9)")
    numpy_of = "import sys, numpy; numpy.save(sys.argv[1], numpy.array([{}], {!r}))"
    assert commanded(numpy_of.format(1.0, "f4"), outputs=(("total", "total.npy"),))[0] == b"\0\0\x80?"
    with pytest.raises(ExecutionError, match=r"total\.npy holds float64, and total is float32"):
        commanded(numpy_of.format(1.0, "f8"), outputs=(("total", "total.npy"),))
    with pytest.raises(ExecutionError, match="cannot be read"):
        commanded(write.format("b'no numpy'"), outputs=(("total", "total.npy"),))


def test_outputs_of_any_size_are_not_read() -> None:
    huge = "import sys; open(sys.argv[1], 'wb').truncate(1 << 40)"  # a hole: nothing lies on the disk
    with pytest.raises(ExecutionError, match=r"total\.bin has 1099511627776 bytes"):
        commanded(huge)
    with pytest.raises(ExecutionError, match=r"total\.npy has 1099511627776 bytes"):
        commanded(huge, outputs=(("total", "total.npy"),))


def test_a_command_that_writes_to_its_input_is_found_out() -> None:
    """The next repetition would have had another one."""
    write = "import sys, pathlib; [pathlib.Path(p).write_bytes(b'abcd') for p in sys.argv[1:]]"
    with pytest.raises(ExecutionError, match=r"changed its input x\.bin"):
        commanded(write)


def test_what_a_command_leaves_running_is_ended(tmp_path: Path) -> None:
    """A child in the background, and a daemon that left the group, also of a command that hangs."""
    script = (
        "import os, pathlib, subprocess, sys, time\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(300)']\n"
        "children = [subprocess.Popen(sleep, start_new_session=apart).pid for apart in (False, True)]\n"
        f"seen = pathlib.Path({str(tmp_path)!r}, 'seen')\n"
        "seen.open('a').write(''.join(f'{child}\\n' for child in children))\n"
        "pathlib.Path(sys.argv[1]).write_bytes(b'abcd')\n"
        "time.sleep(300 if sys.argv[2] == 'hang' else 0)\n"
    )
    for name in ("ends", "hang"):
        folder = tmp_path / "suite" / name
        folder.mkdir(parents=True)
        (folder / "start.py").write_text(script)
        (folder / "kernel.toml").write_text(
            f'[kernel]\nname = "{name}"\nkind = "command"\nsource = "start.py"\noperation = "none"\n'
            'determinism = "run_to_run"\naccumulator = "float32"\ndevice = "cpu"\n'
            f'run = ["{{python}}", "{{source}}", "{{output:y}}", "{name}"]\n'
            '[[buffer]]\nname = "y"\ndtype = "float32"\nsize = 1\nrole = "result"\n'
            '[[case]]\ninput = "ones"\nn = 4\n'
        )
    where = ("--suite", tmp_path / "suite", "--db", tmp_path / "db", "--store", tmp_path / "store")
    said = reprodb("run", "--device", "cpu", "-n", 2, "--timeout", 5, "--json", *where)
    assert {r["kernel"]: r["status"] for r in said.json["results"]} == {"ends": "ok", "hang": "timed_out"}
    started = [int(line) for line in (tmp_path / "seen").read_text().split()]
    assert len(started) == 6
    until = time.monotonic() + 10.0  # a killed process takes a moment to go
    while alive := [pid for pid in started if "sleep(300)" in _command_line(pid)]:
        assert time.monotonic() < until, f"still running: {alive}"
        time.sleep(0.01)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()  # empty of a process that has ended
    except OSError:
        return ""


def test_the_order_of_a_program_needs_no_profile(tmp_path: Path) -> None:
    where = ("--suite", SUITE, "--store", tmp_path / "store")
    said = reprodb("order", "python_sum", "--n", 4, "--device", "cpu", *where)
    assert (said.code, said.out.splitlines()[0].partition(":")[0]) == (0, "python_sum, n4, command, host")
    assert said.out.splitlines()[1:] == ["sum of 4", "├─ x[0] + x[1]", "└─ x[2] + x[3]"]
    said = reprodb("order", "gpu_scale", "--device", "model", *where)
    assert (said.code, "unsupported: gpu_scale calls libraries" in said.out) == (4, True)
    said = reprodb("order", "python_sum", "--profile", "default", "--device", "cpu", *where)
    assert (said.code, said.out) == (2, "")
    assert "python_sum cannot be built under default" in said.err


def test_build_leaves_programs_to_runs_and_says_so(tmp_path: Path) -> None:
    said = reprodb("build", "--suite", SUITE, "--kernel", "cmake_sum", "--store", tmp_path / "store")
    assert (said.code, said.err) == (0, "left to runs, which build programs: cmake_sum\n")


def test_a_run_with_nothing_to_run_says_where_the_programs_run(tmp_path: Path) -> None:
    where = ("--suite", SUITE, "--store", tmp_path / "store", "--db", tmp_path / "db")
    said = reprodb("run", "--device", "model", *where)
    assert said.code == 4
    assert said.err.splitlines() == [
        "reprodb: nothing is left to run: 2 kernels left out, for the CPU alone: cmake_sum, python_sum; "
        "1 kernel left out, for a GPU alone: gpu_scale",
        "remedy: --device cpu",
        "        --device gpu",
    ]
    assert not (tmp_path / "db").exists()


OTHER_PROFILES = (
    "1 kernel left out, for a GPU alone and of other profiles than --profile names (library): lib_cupy_sum"
)


def test_a_kernel_that_was_named_and_cannot_run_is_told_everywhere(tmp_path: Path) -> None:
    """In the terminal, in JSON and on the page; with it alone there is no answer."""
    where = ("--device", "model", "-n", 2, "--db", tmp_path / "db", "--store", tmp_path / "store")
    named = ("--kernel", "lib_cupy_sum", "--profile", "default", *where)
    said = reprodb("nightly", "--kernel", "sum24_left", *named, "--out", tmp_path / "out")
    assert said.code == 0
    assert f"? {OTHER_PROFILES}. --device gpu, and name such a profile too, or leave --profile out" in (
        " ".join(said.out.split())
    )
    assert said.err.splitlines()[1].startswith(OTHER_PROFILES)
    shown = valid(reprodb("show", 1, "--json", "--db", tmp_path / "db").json, "show")
    (left_out,) = shown["run"]["left_out"]
    assert left_out["kernel"] == "lib_cupy_sum"
    assert f"? {OTHER_PROFILES}; " in " ".join(reprodb("show", 1, "--db", tmp_path / "db").out.split())
    diff = reprodb("nightly", "--kernel", "sum24_left", *named, "--out", tmp_path / "out", "--json")
    assert OTHER_PROFILES in valid(diff.json, "diff")["notes"]
    page = re.sub("<[^>]*>", "", (tmp_path / "out" / "run-2.html").read_text())
    assert OTHER_PROFILES in page
    ran = reprodb("run", "--kernel", "sum24_left", *named)
    assert ran.out.endswith("; 1 kernel left out\n")
    alone = reprodb("nightly", *named, "--out", tmp_path / "out")
    assert (alone.code, alone.out) == (4, "")
    assert f"nothing is left to run: {OTHER_PROFILES}" in alone.err


def test_a_bundle_carries_what_a_run_left_out(tmp_path: Path) -> None:
    where = ("--store", tmp_path / "store", "--db", tmp_path / "db")
    asked = ("--kernel", "sum24_left", "--kernel", "lib_cupy_sum", "--profile", "default", "-n", 2)
    assert reprodb("run", *asked, "--device", "model", *where).code == 0
    bundle = tmp_path / "one.reprodb"
    assert reprodb("export", 1, "--output", bundle, "--db", tmp_path / "db").code == 0
    assert reprodb("import", bundle, "--db", tmp_path / "other").code == 0
    shown = [reprodb("show", 1, "--json", "--db", tmp_path / db).json["run"] for db in ("db", "other")]
    assert shown[0]["left_out"] == shown[1]["left_out"] != []


def test_without_names_the_profiles_choose_and_the_lane_leaves_out(tmp_path: Path) -> None:
    """Kernels of other profiles were not asked for; those of another lane were."""
    from reprodb.artifacts import ArtifactStore
    from reprodb.cli.flow import RunOptions, _plan
    from reprodb.executors.choice import resolve_device

    def left_out(**options: Any) -> dict[str, str]:
        plan = _plan(RunOptions(device="model", **options), ArtifactStore(tmp_path), resolve_device("model"))
        return {each.kernel: each.reason for each in plan.left_out}

    assert left_out(profiles=("default",)) == {}
    assert set(left_out(tags=("library",)).values()) == {"for a GPU alone"}
    assert {"lib_cupy_sum", "lib_cub_reduce"} <= left_out(tags=("library",)).keys()
    # Named, it is a result that says so.
    assert left_out(kernels=("lib_cupy_sum",)) == {}


def test_an_output_of_the_repetition_before_does_not_stand_for_this_one() -> None:
    once = "import sys, pathlib; f = pathlib.Path('done'); f.exists() or pathlib.Path(sys.argv[1])"
    script = f"{once}.write_bytes(b'abcd'); f.touch()"
    with pytest.raises(ExecutionError, match=r"wrote no total\.bin"):
        commanded(script)


def test_a_command_of_nvcc_is_built_under_every_profile_of_nvcc(tmp_path: Path) -> None:
    from reprodb.domain import Profile, Toolchain
    from reprodb.programs import runs_under

    suite = load_suite(bundled_suite())
    kernel = next(k for k in suite.kernels if k.name == "lib_cub_reduce")
    nvcc, nvrtc = Profile("nvcc13", "nvcc", "*"), Profile("default", "nvrtc", "*")
    assert kernel.program is not None
    assert [runs_under(kernel.program, p) for p in (nvcc, nvrtc, COMMAND)] == [True, False, False]
    assert not runs_under(kernel.program, replace(nvcc, name="nvcc12"))
    assert runs_under(replace(kernel.program, profiles=()), replace(nvcc, name="nvcc12"))
    seen: list[list[str]] = []

    def fake(arguments: Any, folder: Path, environment: Any, seconds: float, output: Any = None) -> Finished:
        seen.append(list(arguments))
        return Finished(0, "compiled")

    toolchain = Toolchain("nvcc", "13.0.88", "/opt/cuda/bin/nvcc", "PATH")
    artifact, _ = prepare(suite, kernel, nvcc, toolchain, "sm_90", tmp_path, runner=fake)
    words = seen[0]
    assert words[:4] == ["/opt/cuda/bin/nvcc", "-arch=sm_90", "-std=c++17", "-fmad=true"]
    assert "-DMODE=run_to_run" in words and words[-1].endswith("/src/_lib/cub_reduce.cu")
    assert artifact.build.toolchain.label == "nvcc 13.0.88" and artifact.build.toolchain.path == ""
    assert artifact.build.log == "compiled"


# --- Python callables -----------------------------------------------------------------------------


class Gpu(HostExecutor):
    """The measured lane without a GPU: NumPy stands in for CuPy where the arrays are made."""

    lane = Lane.MEASURED


def called(source: str, repetitions: int = 2) -> Any:
    kernel = kernel_of("gpu_scale")
    prepared = Prepared((SourceFile("gpu_scale/scale.py", source),), "")
    executor = CallableExecutor(Gpu(), prepared, xp=np, arrays=Arrays())
    return executor.execute(Artifact(artifact_build()), kernel, kernel.cases[0], repetitions)


def test_a_callable_gets_arrays_and_defines() -> None:
    samples = called((SUITE / "gpu_scale" / "scale.py").read_text())
    x = np.float32(1) + np.arange(1000).astype(np.float32) * np.float32(0.001)
    assert samples.outputs[0].patterns == ((x * np.float32(3)).tobytes(),)
    assert (samples.origin, samples.outputs[0].sequence) == (CodeOrigin.LIBRARY, (0, 0))
    assert samples.libraries == (("numpy", np.__version__),)


def test_a_callable_names_its_library_and_sees_which_repetition_it_is() -> None:
    samples = called(
        "def scaled(arrays, context):\n"
        "    context.library('blas', '7.1')\n"
        "    return {'y': arrays['x'] * arrays['x'].dtype.type(context.repetition)}\n"
    )
    assert samples.libraries[0] == ("blas", "7.1")
    assert samples.outputs[0].sequence == (0, 1)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def scaled(a, c): return a['x'][:3]", "returned 3 × float32 for y"),
        ("def scaled(a, c): return a['x'].astype('f8')", "returned 1000 × float64 for y"),
        ("def scaled(a, c): return {'z': a['x']}", "returned z and no y"),
        ("def scale(a, c): return a['x']", "no function 'scaled'"),
        ("def scaled(a, c:", "gpu_scale/scale.py, line 1"),
        ("def scaled(a, c):\n    a['x'] += 1\n    return a['x']", "changed its input 'x'"),
    ],
)
def test_a_callable_that_is_wrong_is_told_so(source: str, words: str) -> None:
    with pytest.raises(ExecutionError) as wrong:
        called(source)
    assert words in str(wrong.value)


def test_what_a_callable_raises_is_its_results_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reprodb.executors.callables._cupy", lambda: np)
    prepared = Prepared((SourceFile("gpu_scale/scale.py", "def scaled(a, c): raise ValueError('no')"),), "")
    outcome = perform(
        Gpu(), Task(Artifact(artifact_build()), kernel_of("gpu_scale"), 1, prepared=prepared), Arrays()
    )
    assert (outcome.status, outcome.sticky) == (Status.LAUNCH_FAILED, True)
    assert "the callable raised ValueError: no" in outcome.error
    assert 'File "gpu_scale/scale.py", line 1, in scaled' in outcome.error


def test_programs_run_on_their_lane_alone() -> None:
    class Model(HostExecutor):
        lane = Lane.MODELLED

    def task(name: str) -> Task:
        return Task(Artifact(artifact_build()), kernel_of(name), 1)

    with pytest.raises(
        UnsupportedError, match="gpu_scale calls libraries that run on a GPU, which the modelled"
    ):
        executor_of(Model(), task("gpu_scale"))
    with pytest.raises(UnsupportedError, match="cmake_sum is a program that runs on the CPU"):
        executor_of(Model(), task("cmake_sum"))
    assert isinstance(executor_of(Gpu(), task("gpu_scale")), CallableExecutor)
    assert isinstance(executor_of(HostExecutor(), task("python_sum")), CommandExecutor)


def test_named_on_the_model_a_library_is_unsupported_in_words(tmp_path: Path) -> None:
    said = reprodb(
        *("run", "--kernel", "lib_cupy_sum", "--device", "model", "-n", 1, "--json", "--db", tmp_path / "db"),
        *("--store", tmp_path / "store"),
    )
    (result,) = valid(said.json, "show")["results"]
    assert (result["status"], result["profile"], said.code) == ("unsupported", "library", 4)
    assert "run on a GPU" in result["error"] and "--device gpu" in result["error"]


def test_named_on_the_model_a_program_for_a_gpu_is_not_built_in_vain(tmp_path: Path) -> None:
    """CUB takes nvcc half a minute, and may not even be here."""
    said = reprodb(
        *("run", "--kernel", "lib_cub_reduce", "--profile", "nvcc13", "--device", "model", "-n", 1, "--json"),
        *("--db", tmp_path / "db", "--store", tmp_path / "store"),
    )
    (result,) = said.json["results"]
    assert (result["status"], said.code) == ("unsupported", 4)
    assert (
        "lib_cub_reduce is a program that runs on a GPU, which the modelled lane has not" in result["error"]
    )
    assert not (tmp_path / "store" / "programs").exists()


def test_a_kernel_whose_library_is_not_here_is_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from reprodb import programs

    monkeypatch.setattr(programs, "import_problem", lambda name: f"{name}: no" if "cublas" in name else "")
    found = programs.lacking(load_suite(bundled_suite()).kernels)
    assert sorted(found) == [name for name in sorted(CLAIMS) if "cublas" in name]
    assert set(found.values()) == {"cupy_backends.cuda.libs.cublas: no"}


def test_whether_a_module_can_be_imported_is_asked_in_a_process_of_its_own() -> None:
    from reprodb.programs import import_problem

    assert "No module named 'no_such_module_here'" in import_problem("no_such_module_here")


def test_the_bundled_libraries_claim_what_is_documented() -> None:
    claims = {k.name: k.determinism.value for k in load_suite(bundled_suite()).kernels if k.program}
    assert claims == CLAIMS


# --- Manifests ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('kind = "command"', 'kind = "shell"', "kind = 'shell'"),
        ("{input:x}", "{input:y}", "run uses {input:y}"),
        ("{n}", "{m}", "run uses {m}"),
        ("{n}", "{nvcc}", "run uses {nvcc}"),
        ("{output:total}", "{output}", "run uses {output}"),
        ('device = "cpu"', 'device = "tpu"', "device = 'tpu'"),
        ('["CMakeLists.txt"]', '["../../CMakeLists.txt"]', "files"),
        ('["CMakeLists.txt"]', '["Makefile"]', "files"),
        ('role = "result"', 'role = "result"\ninit = "zero"', "without an init"),
        ('order = "first to last"', 'needs = ["os; import x"]', "needs"),
        ('order = "first to last"', 'cubins = ["/etc/passwd"]', "cubins"),
        ('order = "first to last"', 'outputs = { sum = "s" }', "outputs names 'sum'"),
        ('order = "first to last"', 'outputs = { total = "../s" }', "outputs"),
        ('"{output:total}"]', '"{output:total}", 3]', "run = "),
        ('"{output:total}"]', '"total.bin"]', "{output:BUFFER}"),
        (
            '[[buffer]]',
            'outputs = { total = "y", half = "y" }\n[[buffer]]\nname = "half"\ndtype = "float32"\nsize = 1\n'
            'role = "witness"\n[[buffer]]',
            "a file of its own for every buffer",
        ),
        ('[[buffer]]', '[[stage]]\nentry = "f"\n[[buffer]]', "unknown key 'stage'"),
    ],
)  # fmt: skip
def test_a_wrong_command_is_refused(tmp_path: Path, before: str, after: str, words: str) -> None:
    shutil.copytree(SUITE / "cmake_sum", tmp_path / "suite" / "cmake_sum")
    manifest = tmp_path / "suite" / "cmake_sum" / "kernel.toml"
    text = manifest.read_text()
    assert before in text
    manifest.write_text(text.replace(before, after, 1))
    with pytest.raises(UsageError) as refused:
        load_suite(tmp_path / "suite")
    assert words in str(refused.value)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["gpu_scale"])
def test_a_callable_runs_on_a_gpu(tmp_path: Path, name: str) -> None:
    said = reprodb(
        *("run", "--suite", SUITE, "--kernel", name, "--device", "gpu", "-n", 5, "--json"),
        *("--db", tmp_path / "db", "--store", tmp_path / "store"),
    )
    (result,) = valid(said.json, "show")["results"]
    assert (result["status"], result["distinct"], said.code) == ("ok", None, 0)
    assert result["toolchain"].startswith("cupy ")
    assert result["outputs"]["y"]["distinct"] == 1


@pytest.mark.gpu
def test_the_bundled_libraries_run_on_a_gpu(tmp_path: Path) -> None:
    """Whatever is guaranteed shows one pattern; cuBLAS says its version."""
    said = reprodb(
        *("run", "--kernel", "lib_cu*_*", "--profile", "library", "--device", "gpu", "-n", 20, "--json"),
        *("--db", tmp_path / "db", "--store", tmp_path / "store"),
    )
    rows = {r["kernel"]: r for r in valid(said.json, "show")["results"]}
    assert len(rows) == 9
    assert {r["status"] for r in rows.values()} == {"ok"}
    for row in rows.values():
        if row["determinism"] != "not_guaranteed":
            assert {o["distinct"] for o in row["outputs"].values()} == {1}, row["kernel"]
    assert rows["lib_cublas_sgemm"]["toolchain"].startswith("cublas ")


def test_a_callable_without_a_function_is_refused(tmp_path: Path) -> None:
    shutil.copytree(SUITE / "gpu_scale", tmp_path / "suite" / "gpu_scale")
    manifest = tmp_path / "suite" / "gpu_scale" / "kernel.toml"
    manifest.write_text(manifest.read_text().replace("scale.py:scaled", "scale.py"))
    with pytest.raises(UsageError, match=r"callable = 'scale\.py'\nallowed: FILE\.py:FUNCTION"):
        load_suite(tmp_path / "suite")
